"""A run comes out again bit by bit, and `argosy repeat` says where one does not."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.errors import InputError, StoppedError
from argosy.launch.line_of_steps import first_difference, largest_departure, line_of_steps
from argosy.launch.live import LiveLine
from argosy.launch.local import train
from argosy.launch.repeat import repeat
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
    door = [sys.executable, "-c", "from argosy.cli.main import main; main()"]
    done = subprocess.run([*door, "repeat", str(trained), "--json"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["repeats"], found["exact"], found["first_difference"]) == (True, True, None)
    assert (found["steps"], found["evaluations"]) == (20, 2)
    assert found["repeated_in"] is None


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
def test_on_another_kind_of_machine_a_band_is_enough(trained, tmp_path, loss_factor, within):
    info = json.loads((trained / "run.json").read_text())
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "events").mkdir(parents=True)
    (elsewhere / "events" / "attempt-1").symlink_to(trained / "events" / "attempt-1")
    (elsewhere / "recipe.toml").write_text((trained / "recipe.toml").read_text())
    info["environment"]["machine"] = "4 × some other processor"
    (elsewhere / "run.json").write_text(json.dumps(info))
    changed = line_of_steps(trained).steps[7].loss * loss_factor
    found = repeat(elsewhere, tmp_path / "again", worker_command=replayed(trained, "l", 7, changed))
    assert (found.repeats, found.exact) == (within, False)
    assert "4 × some other processor" in found.why_not_exact[0]
    assert found.first_difference.step == 7


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
