"""Saved in the background, a checkpoint is the same; what goes wrong there is told by its real name on every rank."""

import os
import resource
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

from argosy.checkpoint.background import BackgroundSave, Saved
from argosy.checkpoint.fence import Fenced, claim
from argosy.checkpoint.find import find
from argosy.checkpoint.folders import saved_steps
from argosy.checkpoint.manifest import read_manifest
from argosy.checkpoint.orders import Tidy
from argosy.checkpoint.plan import make_plan
from argosy.checkpoint.save import save
from argosy.checkpoint.shared_buffers import SharedBuffers
from argosy.checkpoint.snapshot import Arrangement, Snapshots
from argosy.checkpoint.state import Tree
from argosy.parallel.control import sum_over_ranks
from argosy.policy.retention import RetentionPolicy
from programs import Split, make_state, manifest_of, model_table


class Saver:
    """Background saves of a tree, step by step as the loop makes them."""

    def __init__(self, tree: Tree, checkpoints: Path, buffers: int = 2):
        self.group = dist.group.WORLD if dist.is_initialized() and dist.get_world_size() > 1 else None
        self.ranks = 1 if self.group is None else dist.get_world_size()
        state = Arrangement(tree)
        self.snapshots = Snapshots(state, SharedBuffers.create(buffers, state.bytes), 1)
        self.background = BackgroundSave(self.snapshots, make_plan(tree, self.group), checkpoints, 1, self.group)

    def begin(self, step: int) -> None:
        index = self.snapshots.take(step, {})
        assert index is not None
        self.background.begin(manifest_of(step, self.ranks), index)

    def end(self) -> Saved:
        while True:
            self.background.wait()
            done, failed = sum_over_ranks(self.background.report, self.group)
            if saved := self.background.advance(done, failed):
                return saved

    def save(self, step: int) -> Saved:
        self.begin(step)
        return self.end()


def content(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


def saved_both_ways(split: Split, folder: Path) -> None:
    _, _, tree = make_state(split, model_table())
    save(folder / "waited", tree, manifest_of(1, split.ranks), dist.group.WORLD if split.ranks > 1 else None)
    saver = Saver(tree, folder / "beside")
    saver.begin(1)
    with torch.no_grad():  # training goes on
        for tensors in tree.values():
            for tensor in tensors.values():
                tensor.zero_()
    assert saver.end() == Saved(1)
    saver.background.close()


@pytest.mark.dist
@pytest.mark.parametrize("split", [Split(), Split(fsdp=2), Split(dp=2), Split(dp=2, fsdp=2)], ids=str)
def test_the_files_are_those_of_a_save_that_is_waited_for(tmp_path: Path, run_ranks: Any, split: Split) -> None:
    run_ranks(split.ranks, saved_both_ways, split, tmp_path)
    assert content(tmp_path / "waited" / "step-1") == content(tmp_path / "beside" / "step-1")
    assert find(tmp_path / "beside") is not None
    assert {entry.name for entry in (tmp_path / "beside").iterdir()} == {"step-1", ".generation"}


def small_tree(numbers: int = 1000) -> Tree:
    return {"model": {"a": torch.arange(numbers, dtype=torch.float32), "b": torch.ones(3, 7), "none": torch.empty(0)}}


def test_orders_are_carried_out_one_after_the_other(tmp_path: Path) -> None:
    saver = Saver(small_tree(), tmp_path)
    for step in range(1, 5):
        assert saver.save(step) == Saved(step)
        saver.background.writer.order(Tidy(step, RetentionPolicy(keep_last=2)))
    saver.begin(5)
    assert saver.background.step == 5
    saver.end()
    assert saver.background.step is None
    assert saved_steps(tmp_path) == [5, 4, 3]
    assert [read_manifest(tmp_path / f"step-{step}").verified_wall_s is not None for step in (3, 4, 5)] == [1, 1, 0]


def test_buffers_stay_as_they_are_until_they_are_written(tmp_path: Path) -> None:
    tree = small_tree(1_000_000)
    saver = Saver(tree, tmp_path)
    saver.begin(1)
    tree["model"]["a"].zero_()
    saver.snapshots.take(2, {})
    saver.snapshots.take(3, {})
    saver.end()
    found = find(tmp_path, 1)
    assert found is not None, "the digests are of the bytes that were written"
    saver.snapshots.take(4, {})
    assert sorted(saver.snapshots.buffers.steps()) == [3, 4], "no buffer is held any more"


def fails_on_one_rank(checkpoints: Path, full_rank: int) -> list[tuple[bool, str]]:
    _, _, tree = make_state(Split(fsdp=2), model_table(hidden_size=64, ffn_size=256))
    saver = Saver(tree, checkpoints)
    answers = [saver.save(1)]
    if dist.get_rank() == full_rank:
        limit_files(saver, 16_384)
    answers.append(saver.save(2))
    limit_files(saver, resource.RLIM_INFINITY)
    answers.append(saver.save(3))
    saver.background.close()
    return [(answer.error is None, str(answer.error)) for answer in answers]


def limit_files(saver: Saver, size: int) -> None:
    """No file of the writer may grow beyond `size`: the disk is full for it."""
    process = saver.background.writer._process
    assert process is not None
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.dist
@pytest.mark.parametrize("full_rank", [0, 1])
def test_one_full_disk_is_told_to_all_and_leaves_nothing_behind(tmp_path: Path, run_ranks: Any, full_rank: int) -> None:
    answers = run_ranks(2, fails_on_one_rank, tmp_path, full_rank)
    assert answers[0] == answers[1] == [(True, "None"), (False, "File too large"), (True, "None")]
    assert saved_steps(tmp_path) == [3, 1]
    assert not [entry for entry in tmp_path.iterdir() if entry.name.endswith(".tmp")]


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    saver = Saver(small_tree(), tmp_path / "file")
    saved = saver.save(1)
    assert "Not a directory" in str(saved.error)


def test_a_writer_that_dies_costs_one_save(tmp_path: Path) -> None:
    saver = Saver(small_tree(), tmp_path)
    saver.save(1)
    process = saver.background.writer._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    saver.begin(2)
    process.kill()
    assert str(saver.end().error) == "the writer process was killed by signal 9"
    assert saver.save(3) == Saved(3)
    assert saved_steps(tmp_path) == [3, 1]


def test_a_newer_attempt_shuts_the_writer_out(tmp_path: Path) -> None:
    saver = Saver(small_tree(), tmp_path)
    saver.save(1)
    claim(tmp_path, 2)
    assert isinstance(saver.save(2).error, Fenced)
    assert saved_steps(tmp_path) == [1]


def test_a_writer_ends_with_its_rank_and_not_by_a_signal_to_all(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        saver = Saver(small_tree(), tmp_path)
        saver.save(1)
        process = saver.background.writer._process
        assert process is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
        saver.save(2)
        os.write(theirs, str(process.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(theirs)
    writer = int(os.read(ours, 100))
    os.close(ours)
    assert saved_steps(tmp_path) == [2, 1]
    assert not psutil.pid_exists(writer) or not psutil.wait_procs([psutil.Process(writer)], timeout=10)[1]


def test_the_writer_imports_no_torch(tmp_path: Path) -> None:
    saver = Saver(small_tree(), tmp_path)
    saver.save(1)
    process = saver.background.writer._process
    assert process is not None
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    assert "libtorch" not in maps
    assert "argosy-snapshots" in maps


def test_fifty_saves_take_no_more_memory_and_no_more_descriptors(tmp_path: Path) -> None:
    saver = Saver(small_tree(500_000), tmp_path)

    def use() -> list[tuple[int, int]]:
        process = saver.background.writer._process
        assert process is not None
        both = [psutil.Process(), psutil.Process(process.pid)]
        return [(one.memory_full_info().uss, one.num_fds()) for one in both]

    for step in range(1, 8):
        saver.save(step)
    before = use()
    for step in range(8, 58):
        saver.save(step)
        saver.background.writer.order(Tidy(step, RetentionPolicy(keep_last=2)))
    for (uss, fds), (uss_after, fds_after) in zip(before, use(), strict=True):
        assert fds_after <= fds + 1
        assert uss_after - uss < 2_000_000, "one leaked state would be as much each time"
