"""A run comes out again bit by bit, and `argosy repeat` says where one does not."""

import dataclasses
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.errors import InputError, StoppedError
from argosy.launch.line_of_steps import first_difference, largest_departure, line_of_steps
from argosy.launch.live import LiveLine
from argosy.launch.local import train
from argosy.launch.repeat import repeat
from argosy.launch.seed_band import seed_band
from argosy.registry.run_folder import RunFolder

HERE = Path(__file__).parent
SHAPE = (
    "model.layers=2",
    "model.hidden_size=32",
    "model.heads=2",
    "model.ffn_size=64",
    "data.sequence_length=32",
    "batch.tokens=256",
    "objective.tokens=5120",  # 20 steps
    "eval.every_steps=10",
    "eval.final_tokens=512",
    "eval.tokens=512",
    "budget.device_hours=100",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, recipe_file) -> Path:
    """A run of 20 steps by a real rank."""
    folder = tmp_path_factory.mktemp("repeat") / "run"
    assert train(recipe_file, SHAPE, 1, folder, live=LiveLine(None)).exit == 0
    return folder


def replayed(run: Path, field: str = "l", step: int = -1, value: float = 0.0) -> list[str]:
    source = str(run / "events" / "attempt-1" / "rank-0.jsonl")
    return [sys.executable, str(HERE / "replay.py"), source, field, str(step), str(value)]


@pytest.mark.dist
def test_a_real_run_is_bit_equal(trained):
    done = argosy("repeat", str(trained), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["repeats"], found["exact"], found["first_difference"]) == (True, True, None)
    assert (found["steps"], found["evaluations"]) == (20, 2)
    assert found["repeated_in"] is None


def argosy(*words: str) -> subprocess.CompletedProcess[str]:
    door = [sys.executable, "-c", "from argosy.cli.main import main; main()"]
    return subprocess.run([*door, *words], capture_output=True, text=True, timeout=200)


def copied(run: Path, folder: Path, *, seed: int = 0, machine: str | None = None, loss_factor: float = 1.0) -> Path:
    """The run in another folder, as another seed or machine might have left it."""
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoints"))
    info = json.loads((folder / "run.json").read_text())
    info["environment"]["machine"] = machine or info["environment"]["machine"]
    (folder / "run.json").write_text(json.dumps(info))
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("seed = 0", f"seed = {seed}"))
    journal = folder / "events" / "attempt-1" / "rank-0.jsonl"
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    for record in records:
        if record["k"] == "eval":
            record["loss"] *= loss_factor
    journal.write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.mark.dist
def test_the_door_says_no_with_1_and_names_the_step(trained, tmp_path):
    run = copied(trained, tmp_path / "run")
    journal = run / "events" / "attempt-1" / "rank-0.jsonl"
    lines = journal.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if json.loads(line).get("s") == 7 and json.loads(line)["k"] == "step")
    lines[at] = json.dumps(json.loads(lines[at]) | {"l": 5.25})
    journal.write_text("\n".join(lines) + "\n")
    done = argosy("repeat", str(run), "--into", str(tmp_path / "again"))
    assert done.returncode == 1, done.stderr
    assert "first difference: step 7, loss: 5.25 then" in done.stdout
    assert "does not repeat" in done.stdout


@pytest.mark.parametrize(("field", "name"), [("l", "loss"), ("g", "grad_norm"), ("r", "lr")])
def test_the_first_step_that_differs_is_named(trained, tmp_path, field, name):
    step = line_of_steps(trained).steps[7]
    changed = dataclasses.asdict(step)[name] * (1 + 2**-52)  # the last bit
    found = repeat(trained, tmp_path / "again", worker_command=replayed(trained, field, 7, changed))
    assert not found.repeats
    assert found.exact
    assert (found.first_difference.step, found.first_difference.field) == (7, name)
    assert found.repeated_in == str(tmp_path / "again")
    assert f"step 7, {name}" in "\n".join(found.lines())


def test_an_evaluation_that_differs_is_named(trained, tmp_path):
    found = repeat(trained, tmp_path / "again", worker_command=replayed(trained, "loss", 10, 5.0))
    assert (found.first_difference.step, found.first_difference.field) == (10, "evaluation")


@pytest.mark.parametrize(("loss_factor", "within"), [(1.001, True), (1.2, False)])
def test_on_another_kind_of_machine_the_band_of_seeds_is_enough(trained, tmp_path, loss_factor, within):
    elsewhere = copied(trained, tmp_path / "elsewhere", machine="4 × some other processor")
    changed = line_of_steps(trained).steps[7].loss * loss_factor
    found = repeat(elsewhere, tmp_path / "again", worker_command=replayed(trained, "l", 7, changed))
    assert (found.repeats, found.exact) == (within, False)
    assert "4 × some other processor" in found.why_not_exact[0]
    assert found.first_difference.step == 7
    assert found.band_source.startswith("the largest published spread of seeds, 0.4%; no other seed")
    assert repeat(elsewhere, tmp_path / "b", band=0.5, worker_command=replayed(trained, "l", 7, changed)).repeats


def test_an_evaluation_outside_the_band_does_not_repeat(trained, tmp_path):
    elsewhere = copied(trained, tmp_path / "elsewhere", machine="another")
    changed = line_of_steps(trained).evals[10] * 1.2
    found = repeat(elsewhere, tmp_path / "again", worker_command=replayed(trained, "loss", 10, changed))
    assert (found.repeats, found.departure_step) == (False, 10)
    assert found.departure == pytest.approx(0.2)


def test_the_band_is_that_of_the_seeds_beside_the_run(trained, tmp_path):
    run = RunFolder.open(copied(trained, tmp_path / "a"))
    copied(trained, tmp_path / "the same seed", loss_factor=9)
    copied(trained, tmp_path / "b", seed=1, loss_factor=1.01)
    assert "only 2 seeds" in seed_band(run).source
    copied(trained, tmp_path / "c", seed=2, loss_factor=0.99)
    other = copied(trained, tmp_path / "another recipe", seed=3, loss_factor=5)
    recipe = (other / "recipe.toml").read_text()
    (other / "recipe.toml").write_text(recipe.replace("clip_norm = 1.0", "clip_norm = 2.0"))
    band = seed_band(run)
    # Three losses 1, 1.01 and 0.99 have s = 0.01; the 97.5 % quantile of t with 2 degrees of freedom is 4.3027.
    assert band.relative == pytest.approx(4.3027 * math.sqrt(2) * 0.01, rel=1e-4)
    assert "spread of the 3 seeds" in band.source


def test_a_run_whose_data_are_gone_or_changed_is_not_started(recipe_file, tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    for number in range(40):
        (text / f"{number}.txt").write_text(f"a line of text and the number {number}\n" * 40)
    data, run = tmp_path / "data", tmp_path / "run"
    built = argosy("data", "build", str(text), str(data), "--tokenizer", "bytes")
    assert built.returncode == 0, built.stderr
    sets = [*SHAPE, f"data.source='{data}'"]
    assert train(recipe_file, sets, 1, run, live=LiveLine(None)).exit == 0

    data.rename(tmp_path / "elsewhere")
    gone = argosy("repeat", str(run), "--into", str(tmp_path / "again"))
    assert gone.returncode == 66
    assert f"{data}: the data that the run was trained on are gone" in gone.stderr
    assert str(line_of_steps(run).data_digest) in gone.stderr
    assert not (tmp_path / "again").exists(), "nothing was started"

    (text / "0.txt").write_text("other text\n" * 40)
    assert argosy("data", "build", str(text), str(data), "--tokenizer", "bytes").returncode == 0
    changed = argosy("repeat", str(run), "--into", str(tmp_path / "other"))
    assert changed.returncode == 66
    assert str(line_of_steps(run).data_digest) in changed.stderr


def test_a_run_that_was_killed_is_compared_as_far_as_it_came(trained, tmp_path):
    short = tmp_path / "short"
    (short / "events" / "attempt-1").mkdir(parents=True)
    for name in ("run.json", "recipe.toml"):
        (short / name).write_text((trained / name).read_text())
    lines = (trained / "events" / "attempt-1" / "rank-0.jsonl").read_text().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if json.loads(line).get("s") == 12)
    (short / "events" / "attempt-1" / "rank-0.jsonl").write_text("".join(lines[:cut]))
    found = repeat(short, worker_command=replayed(trained))
    assert (found.repeats, found.steps) == (True, 12)


def test_what_cannot_be_repeated_says_why(trained, tmp_path):
    recipe = RunFolder.open(trained).recipe()
    RunFolder.create(tmp_path / "young", recipe)
    (tmp_path / "young" / "events").mkdir(exist_ok=True)
    with pytest.raises(InputError, match="no step yet"):
        repeat(tmp_path / "young")
    with pytest.raises(StoppedError, match="ended after 0 of 20 steps"):
        repeat(trained, tmp_path / "x", worker_command=[sys.executable, str(HERE / "stand_in.py"), "done"])


def test_lines_are_compared_where_both_have_steps(trained):
    line = line_of_steps(trained)
    assert first_difference(line, line) is None
    assert largest_departure(line, line, 10)[0] == 0
    half = dataclasses.replace(line, steps={step: line.steps[step] for step in range(5)})
    assert first_difference(line, half) is None
