"""A writer that is slow, or has no room on its disk: it is told, and training goes on."""

import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch.distributed as dist

from argosy.checkpoint.find import find
from argosy.checkpoint.folders import saved_steps
from argosy.checkpoint.save import SaveError
from argosy.errors import Exit
from argosy.training.observers import Observer
from tiny_runs import SMALL, losses, make_run, records, train

BESIDE = (*SMALL, "checkpoint.background=true", "checkpoint.every_steps=2")


def writer() -> psutil.Process:
    """That of this rank."""
    (found,) = [child for child in psutil.Process().children() if "argosy.checkpoint.writer" in child.cmdline()]
    return found


def settle(process: psutil.Process) -> None:
    """Wait until it has nothing to do: it sleeps, time after time."""
    asleep = 0
    while asleep < 5:
        asleep = asleep + 1 if process.status() == psutil.STATUS_SLEEPING else 0
        time.sleep(0.02)


class Stall(Observer):
    """The writer of the last rank does nothing from the end of one step to the end of another."""

    def __init__(self, first: int, last: int):
        self.signals = {first: signal.SIGSTOP, last: signal.SIGCONT}

    def on_step_end(self, step: int, loss: float) -> None:
        if step in self.signals and dist.get_rank() == dist.get_world_size() - 1:
            os.kill(writer().pid, self.signals[step])


class FullDisk(Observer):
    """The writer of one rank finds no room from the end of one step on, to that of another (None: for good)."""

    def __init__(self, rank: int, first: int, last: int | None):
        self.rank = rank
        self.limits = {first: 10_000, last: resource.RLIM_INFINITY}

    def on_step_end(self, step: int, loss: float) -> None:
        settle(writer())
        if step in self.limits and dist.get_rank() == self.rank:
            resource.prlimit(writer().pid, resource.RLIMIT_FSIZE, (self.limits[step], resource.RLIM_INFINITY))


def phases(run: Any, rank: int = 0) -> list[tuple[int, str]]:
    return [(event["s"], event["ph"]) for event in records(run, 1, "ckpt", rank)]


@pytest.mark.dist
def test_a_save_that_overruns_its_interval_is_told_and_the_next_waits(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *BESIDE)
    assert train(run_ranks, run, 2, [Stall(0, 4)]) == [Exit.DONE] * 2
    for rank in (0, 1):
        told = phases(run, rank)
        assert told[:2] == [(2, "start"), (4, "coalesced")]
        assert (4, "start") not in told
        assert {step for step, phase in told if phase == "committed"} >= {2, 6}
    assert sorted(losses(run)) == [0, 1, 2, 3, 4, 5], "nobody waited for it"
    assert find(run.checkpoints, 6) is not None


@pytest.mark.dist
@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_disk_is_told_on_every_rank_and_the_next_save_works(tmp_path: Path, run_ranks: Any, rank: int) -> None:
    run = make_run(tmp_path / "run", *BESIDE)
    assert train(run_ranks, run, 2, [FullDisk(rank, 0, 4)]) == [Exit.DONE] * 2
    for reader in (0, 1):
        failed = [event for event in records(run, 1, "ckpt", reader) if event["ph"] == "failed"]
        assert failed
        assert all("File too large" in event["why"] for event in failed)
        assert phases(run, reader)[-2:] == [(6, "start"), (6, "committed")]
    assert saved_steps(run.checkpoints)[0] == 6
    assert not [entry for entry in run.checkpoints.iterdir() if entry.name.endswith(".tmp")]


@pytest.mark.dist
def test_a_last_save_that_fails_needs_a_person_and_memory_keeps_the_end(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *BESIDE, "checkpoint.snapshot_every_steps=1")
    with pytest.raises(SaveError, match="step 6 not written: File too large"):
        train(run_ranks, run, 2, [FullDisk(1, 4, None)])
    assert train(run_ranks, run, 2) == [Exit.DONE] * 2
    (restore,) = records(run, 2, "restore")
    assert (restore["tier"], restore["to"]) == ("memory", 6), "the last state was not lost with the save"
    assert records(run, 2, "step") == []
    assert saved_steps(run.checkpoints)[0] == 6
