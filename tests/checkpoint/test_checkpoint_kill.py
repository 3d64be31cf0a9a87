"""Killed at any moment of a save, a run has all its earlier checkpoints or those and the new one."""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from argosy.checkpoint.commit import delete
from argosy.checkpoint.find import find
from argosy.checkpoint.folders import saved_steps
from argosy.checkpoint.manifest import read_manifest
from argosy.checkpoint.save import save
from argosy.checkpoint.verify import find_damage
from programs import Split, make_state, manifest_of, model_table

MOMENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def save_killed_at_every_moment(checkpoints: Path, start: Path) -> list[list[int]]:
    """Before each operation on the file system in turn: a process that saves step 3 and retires step 1 is killed.

    Returns the steps that were left each time.
    """
    _, _, tree = make_state(Split(), model_table())
    left = []
    for moment in range(1, 1000):
        shutil.rmtree(checkpoints, ignore_errors=True)
        shutil.copytree(start, checkpoints)
        child = os.fork()
        if child == 0:
            _die_before(moment)
            save(checkpoints, tree, manifest_of(3), None)
            delete(checkpoints, [1], 1)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            return left
        for step in saved_steps(checkpoints):
            folder = checkpoints / f"step-{step}"
            assert find_damage(folder, read_manifest(folder)) == [], f"killed before operation {moment}"
        left.append(saved_steps(checkpoints))
    raise AssertionError("a save does not take that many operations")


def _die_before(moment: int) -> None:
    seen = 0

    def count(event: str, args: tuple) -> None:
        nonlocal seen
        if event in MOMENTS:
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


@pytest.mark.chaos
@pytest.mark.dist
def test_a_kill_at_any_moment_leaves_whole_checkpoints_only(tmp_path: Path, run_ranks: Any) -> None:
    start = tmp_path / "start"
    _, _, tree = make_state(Split(), model_table())
    for step in (1, 2):
        save(start, tree, manifest_of(step), None)
    (left,) = run_ranks(1, save_killed_at_every_moment, tmp_path / "checkpoints", start)
    assert [steps for n, steps in enumerate(left) if steps not in left[:n]] == [[2, 1], [3, 2, 1], [3, 2]]
    assert left.count([2, 1]) > 5, "the kills must have hit the writing"


def test_what_a_kill_left_behind_makes_room_for_the_next_save(tmp_path: Path) -> None:
    _, _, tree = make_state(Split(), model_table())
    for name in (".step-3.g1.tmp", ".step-1.old.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__0_0.distcp").write_bytes(b"half")
    save(tmp_path, tree, manifest_of(4), None)
    assert [entry.name for entry in tmp_path.glob("*step*")] == ["step-4"]


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    _, _, tree = make_state(Split(), model_table())
    save(tmp_path, tree, manifest_of(4), None)
    (tmp_path / "step-4" / "__0_0.distcp").write_bytes(b"half")
    save(tmp_path, tree, manifest_of(4), None)
    found = find(tmp_path)
    assert found is not None
    assert [entry.name for entry in tmp_path.glob("*step*")] == ["step-4"]
