"""What attempts that are gone left behind, and attempts that are not gone yet."""

import multiprocessing
import time
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.checkpoint.commit import begin_draft, commit, delete
from argosy.checkpoint.confirm import confirm
from argosy.checkpoint.fence import Fenced, claim
from argosy.checkpoint.find import find
from argosy.checkpoint.folders import FENCE_FILE, saved_steps
from argosy.checkpoint.save import save
from argosy.checkpoint.shards import Chunk, Shard
from argosy.checkpoint.write import write_rank_file
from programs import Split, make_state, manifest_of, model_table


def write_one(root: Path, step: int, generation: int) -> None:
    """A checkpoint of one value, the generation."""
    chunk = Chunk("model.w", "uint8", (1,), (0,), (1,))
    draft = begin_draft(root, step, generation)
    file = write_rank_file(draft, "__0_0.distcp", [Shard(chunk, lambda: memoryview(bytes([generation])))])
    commit(root, replace(manifest_of(step), generation=generation), [file], b"")


def value_of(root: Path, step: int) -> int:
    found = find(root, step)
    assert found is not None
    (one,) = found[1].stored()
    return (found[0] / one.file).read_bytes()[one.at]


def test_what_a_kill_left_behind_makes_room_for_the_next_save(tmp_path: Path) -> None:
    _, _, tree = make_state(Split(), model_table())
    for name in (".step-3.g1.tmp", ".step-1.old.tmp", ".step-2.g0.tmp", ".step-5.g2.tmp", ".step-x.g1.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__0_0.distcp").write_bytes(b"half")
    save(tmp_path, tree, manifest_of(4), None)
    left = {entry.name for entry in tmp_path.iterdir()}
    assert left == {"step-4", FENCE_FILE, ".step-5.g2.tmp", ".step-x.g1.tmp"}, "not what a newer attempt or others own"


def test_files_of_an_earlier_try_do_not_get_into_the_next(tmp_path: Path) -> None:
    draft = begin_draft(tmp_path, 4, 1)
    (draft / "__7_0.distcp").write_bytes(b"of a rank that there was then")
    write_one(tmp_path, 4, 1)
    assert {entry.name for entry in (tmp_path / "step-4").iterdir()} == {"__0_0.distcp", ".metadata", "manifest.json"}


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    write_one(tmp_path, 4, 1)
    (tmp_path / "step-4" / "__0_0.distcp").write_bytes(b"half")
    write_one(tmp_path, 4, 2)
    assert value_of(tmp_path, 4) == 2
    assert {entry.name for entry in tmp_path.iterdir()} == {"step-4", FENCE_FILE}


def test_an_attempt_that_was_replaced_can_do_nothing_any_more(tmp_path: Path) -> None:
    write_one(tmp_path, 1, 1)
    write_one(tmp_path, 2, 1)
    draft = begin_draft(tmp_path, 3, 1)
    late = write_rank_file(draft, "__0_0.distcp", [])
    claim(tmp_path, 2)
    before = sorted(tmp_path.rglob("*"))
    for act in (
        lambda: commit(tmp_path, manifest_of(3), [late], b""),
        lambda: delete(tmp_path, [1], 1),
        lambda: confirm(tmp_path, 2, 1),
        lambda: claim(tmp_path, 1),
    ):
        with pytest.raises(Fenced, match="attempt 2 has taken over from attempt 1"):
            act()
    assert sorted(tmp_path.rglob("*")) == before
    assert saved_steps(tmp_path) == [2, 1]


def keep_saving(root: Path, generation: int, until_s: float) -> None:
    try:
        step = 0
        while time.monotonic() < until_s:
            step += 1
            write_one(root, step, generation)
    except (Fenced, FileNotFoundError):  # shut out, or its draft was swept by the newer attempt
        return
    raise SystemExit(0 if generation == 2 else 3)


@pytest.mark.chaos
def test_of_two_attempts_that_race_the_newer_one_wins(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    for turn in range(5):
        root = tmp_path / str(turn)
        now_s = time.monotonic()
        racers = [fork.Process(target=keep_saving, args=(root, g, now_s + 0.4 + 0.2 * g)) for g in (1, 2)]
        racers[0].start()
        time.sleep(0.05 * turn)
        racers[1].start()
        for racer in racers:
            racer.join(20)
        assert [racer.exitcode for racer in racers] == [0, 0], "the older is shut out, the newer never"
        steps = saved_steps(root)
        values = [value_of(root, step) for step in sorted(steps)]
        assert values[0] == 2, "each step of the newer attempt stays its own"
        assert values == sorted(values, reverse=True), "and the older one's commits all came before"
