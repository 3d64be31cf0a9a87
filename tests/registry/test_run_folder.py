"""A run folder is whole or absent, belongs to one launcher at a time, and continues only what it learns."""

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from argosy.errors import Exit, InputError, UsageError
from argosy.recipe.load import parse_recipe
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import Locked, RunFolder, find_runs


def recipe(*sets: str) -> Recipe:
    return parse_recipe("[objective]\ntokens = 100_000\n", sets)


HOLD = """
import sys
from pathlib import Path
from argosy.registry.run_folder import RunFolder
with RunFolder.open(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(run: RunFolder) -> subprocess.Popen[str]:
    """Another process that holds the run's lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_create_then_open(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path / "a" / "run", recipe("run.name=first"), parent="runs/p@4")
    found = RunFolder.open(tmp_path / "a" / "run")
    assert found.info == made.info
    assert (found.info.name, found.info.parent, found.info.schema) == ("first", "runs/p@4", 1)
    assert found.recipe() == recipe("run.name=first")
    assert len(found.info.learning_hash) == 64
    with pytest.raises(UsageError, match="holds a run already"):
        RunFolder.create(made.path, recipe())


def test_no_run_and_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"it has no run\.json"):
        RunFolder.open(tmp_path)
    for damage in ("", "{", "[]", "{}", "\x00" * 40):
        (tmp_path / "run.json").write_text(damage)
        with pytest.raises(InputError, match="is damaged"):
            RunFolder.open(tmp_path)


def test_keys_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "r", recipe())
    content = json.loads((run.path / "run.json").read_text()) | {"later": [1]}
    (run.path / "run.json").write_text(json.dumps(content))
    assert RunFolder.open(run.path).info.id == content["id"]


def test_continuing_takes_what_only_changes_how_it_runs(tmp_path: Path) -> None:
    RunFolder.create_or_continue(tmp_path / "r", recipe())
    again = RunFolder.create_or_continue(tmp_path / "r", recipe("layout.dp=2", "budget.price_per_device_hour=3"))
    assert again.recipe().layout.dp == 2


def test_continuing_with_other_learning_names_the_fields(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "r", recipe())
    with pytest.raises(UsageError) as caught:
        RunFolder.create_or_continue(
            tmp_path / "r", recipe("optimizer.learning_rate=1e-4", "model.layers=5", "layout.dp=2")
        )
    assert "model.layers, optimizer.learning_rate differ" in str(caught.value)
    assert caught.value.exit_code == Exit.USAGE
    assert RunFolder.open(tmp_path / "r").recipe() == recipe()


def test_second_process_is_told_who_holds_the_run(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "r", recipe())
    with run.lock():
        pass
    other = holder(run)
    try:
        with pytest.raises(Locked) as caught, run.lock():
            raise AssertionError("two holders")
        assert f"pid {other.pid} on {socket.gethostname()}" in str(caught.value)
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    with run.lock():  # a killed holder leaves no lock behind
        assert f"pid {os.getpid()} " in (run.path / "lock").read_text()


def test_a_program_that_the_holder_starts_does_not_hold_on(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "r", recipe())
    with run.lock():
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        with run.lock():
            assert child.poll() is None
    finally:
        child.communicate(b"\n")


def test_attempts_are_claimed_once(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "r", recipe())
    for name in ("attempt-x", "attempt-07.bak", "other"):
        (run.events / name).mkdir()
    (run.events / "attempt-9").write_text("a foreign file")
    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(lambda _: RunFolder(run.path).claim_attempt(), range(24)))
    assert len(set(claimed)) == 24
    assert run.attempts() == sorted(claimed)
    assert 9 not in claimed
    assert run.attempts()[0] == 1


def test_where_things_lie(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "r", recipe())
    inside = {
        "events/attempt-2/rank-3.jsonl": run.rank_file(2, 3),
        "events/attempt-2/agent-h.jsonl": run.agent_file(2, "h"),
        "heartbeat/attempt-2-rank-3": run.heartbeat_file(2, 3),
        "plan-2.json": run.plan_file(2),
        "checkpoints": run.checkpoints,
        "control": run.control,
        "paid.jsonl": run.paid_file,
        "price.jsonl": run.price_file,
        "decisions.jsonl": run.decisions_file,
        "recipe.toml": run.recipe_file,
    }
    assert {path.relative_to(run.path).as_posix() for path in inside.values()} == set(inside)


def test_find_runs_passes_over_what_is_none(tmp_path: Path) -> None:
    runs = [RunFolder.create(tmp_path / name, recipe()) for name in ("b", "a")]
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    assert [run.path for run in find_runs(tmp_path)] == [run.path for run in runs]
    assert find_runs(tmp_path / "nowhere") == []


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot be written: not a directory → give a --run-dir"):
        RunFolder.create(tmp_path / "file" / "run", recipe())
    with pytest.raises(InputError, match="cannot be written"):
        RunFolder.create(Path("/proc/argosy-run"), recipe())  # also root may not write here


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_run_can_be_read_but_not_held(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "r", recipe())
    for folder in (run.path, run.events):
        folder.chmod(0o555)
    try:
        assert RunFolder.open(run.path).recipe() == recipe()
        with pytest.raises(InputError, match="permission denied"), run.lock():
            pass
        with pytest.raises(InputError, match="permission denied"):
            run.claim_attempt()
    finally:
        for folder in (run.path, run.events):
            folder.chmod(0o755)
