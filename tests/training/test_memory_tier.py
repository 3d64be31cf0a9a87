"""Ranks that die come back from memory, or from storage where that is newer; either way as if nothing had happened."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from argosy.checkpoint.copies import Copies
from argosy.checkpoint.find import find
from argosy.checkpoint.snapshot_host import SnapshotHost, host_name
from argosy.errors import Exit
from argosy.registry.run_folder import RunFolder
from argosy.training.observers import Observer
from tiny_runs import SMALL, StopAfter, digests, losses, make_run, records, train

EACH_STEP = "checkpoint.snapshot_every_steps=1"
SHARDS = "layout.fsdp=2"
BESIDE = "checkpoint.background=true"


class Death(Exception):
    """Stands for SIGKILL: nothing is saved, said or closed after it."""


class DieIn(Observer):
    """One rank dies at the end of a step, the others with it."""

    def __init__(self, step: int, rank: int = 0):
        self.step = step
        self.rank = rank

    def on_step_end(self, step: int, loss: float) -> None:
        if step == self.step and (not dist.is_initialized() or dist.get_rank() == self.rank):
            raise Death


def host_of(run: RunFolder) -> SnapshotHost | None:
    return SnapshotHost.adopt(host_name(run.path, run.info.id))


def restores(run: RunFolder, attempt: int) -> list[tuple[str, int]]:
    return [(record["tier"], record["to"]) for record in records(run, attempt, "restore")]


@pytest.mark.dist
@pytest.mark.parametrize(
    ("ranks", "layout"),
    [(1, ()), (2, (SHARDS,)), (2, ()), (2, (SHARDS, "precision.compute='bf16'", BESIDE))],
    ids=["one rank", "fsdp", "replicas", "fsdp bf16 beside"],
)
def test_killed_twice_it_equals_its_twin(tmp_path: Path, run_ranks: Any, ranks: int, layout: tuple[str, ...]) -> None:
    whole, parts = (make_run(tmp_path / name, *SMALL, EACH_STEP, *layout) for name in ("whole", "parts"))
    assert train(run_ranks, whole, ranks) == [Exit.DONE] * ranks
    for dies_in in (2, 4):
        with pytest.raises(Death):
            train(run_ranks, parts, ranks, [DieIn(dies_in, ranks - 1)])
    assert train(run_ranks, parts, ranks) == [Exit.DONE] * ranks

    # Step 2 was done when the rank died, but the snapshot after it is taken when the next step begins.
    assert [restores(parts, attempt) for attempt in (1, 2, 3)] == [[], [("memory", 2)], [("memory", 4)]]
    assert losses(parts) == losses(whole)
    assert sorted(losses(whole)) == [0, 1, 2, 3, 4, 5]
    assert digests(parts, 6) == digests(whole, 6)
    for run in (whole, parts):
        if host := host_of(run):
            assert host.held() == [], "the end is on storage: nothing stays in memory"
            host.stop()


@pytest.mark.dist
def test_what_is_newest_counts_wherever_it_lies(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, "checkpoint.snapshot_every_steps=3", "checkpoint.every_steps=2")
    for dies_in in (3, 4):
        with pytest.raises(Death):
            train(run_ranks, run, 2, [DieIn(dies_in)])
    assert restores(run, 2) == [("memory", 3)]
    assert train(run_ranks, run, 2) == [Exit.DONE] * 2
    assert restores(run, 3) == [("storage", 4)]


@pytest.mark.dist
def test_another_world_size_goes_on_from_storage(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, EACH_STEP, "checkpoint.every_steps=2")
    with pytest.raises(Death):
        train(run_ranks, run, 2, [DieIn(3)])
    assert train(run_ranks, run, 1) == [Exit.DONE]
    assert restores(run, 2) == [("storage", 2)]
    if host := host_of(run):
        assert host.held() == [], "also what the other rank had is given back"
        host.stop()


@pytest.mark.dist
def test_after_a_clean_stop_nothing_is_left_in_memory(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, EACH_STEP)
    assert train(run_ranks, run, 2, [StopAfter(run, 3)]) == [Exit.START_AGAIN] * 2
    (run.control / "stop").unlink()
    assert train(run_ranks, run, 2) == [Exit.DONE] * 2
    assert restores(run, 2) == [("storage", 3)]


@pytest.mark.dist
def test_saves_beside_training_are_those_of_a_run_that_waits(tmp_path: Path, run_ranks: Any) -> None:
    waits, goes_on = (
        make_run(
            tmp_path / name,
            *SMALL,
            "checkpoint.every_steps=2",
            "checkpoint.keep_last=9",
            f"checkpoint.background={beside}",
        )
        for name, beside in (("waits", "false"), ("goes_on", "true"))
    )
    for run in (waits, goes_on):
        assert train(run_ranks, run, 2) == [Exit.DONE] * 2
    assert losses(goes_on) == losses(waits)
    committed = {record["s"] for record in records(goes_on, 1, "ckpt") if record["ph"] == "committed"}
    assert 6 in committed
    for step in committed:
        assert digests(goes_on, step) == digests(waits, step)
    # What was due while another was under way is told, and begun later.
    started = [record["s"] for record in records(goes_on, 1, "ckpt") if record["ph"] == "start"]
    assert set(started) == committed
    assert find(goes_on.checkpoints, 6) is not None


@pytest.mark.dist
def test_a_run_without_its_checkpoints_goes_on_from_a_copy(tmp_path: Path, run_ranks: Any) -> None:
    far = tmp_path / "far"
    whole = make_run(tmp_path / "whole", *SMALL)
    run = make_run(tmp_path / "run", *SMALL, f"checkpoint.copy_to='{far}'")
    assert train(run_ranks, whole, 2) == [Exit.DONE] * 2
    assert train(run_ranks, run, 2, [StopAfter(run, 3)]) == [Exit.START_AGAIN] * 2
    (run.control / "stop").unlink()
    assert Copies(str(far), run.info.id).steps() == [3]
    shutil.rmtree(run.checkpoints)
    assert train(run_ranks, run, 2) == [Exit.DONE] * 2
    assert restores(run, 2) == [("storage", 3)]
    assert digests(run, 6) == digests(whole, 6)
    copied = [(record["s"], record["ph"]) for record in records(run, 2, "ckpt") if record["tier"] == "copy"]
    assert copied == [(6, "committed")]


class HostGone(Observer):
    """The process that keeps the snapshots ends in the middle of the run."""

    def __init__(self, run: RunFolder):
        self.path, self.id = run.path, run.info.id

    def on_step_end(self, step: int, loss: float) -> None:
        if step == 2 and dist.get_rank() == 0:
            host = SnapshotHost.adopt(host_name(self.path, self.id))
            assert host is not None
            host.stop()


@pytest.mark.dist
def test_a_run_ends_well_without_its_host(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, EACH_STEP)
    assert train(run_ranks, run, 2, [HostGone(run)]) == [Exit.DONE] * 2
    assert find(run.checkpoints, 6) is not None
