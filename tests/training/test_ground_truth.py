"""Faults whose truth is measured where they are made, on a rank drawn at random: the books must find rank, cause, size.

The journal is told nothing. Two runs by default; the sweep of twenty is marked slow.
"""

import gc
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from argosy.data.loader import Loader
from argosy.journal.reader import read_run
from argosy.ledger.books import Books, keep_books
from argosy.models.decoder import Block
from argosy.training.observers import Observer
from tiny_runs import SMALL, make_run, train

RANKS, STEPS = 2, 24
FIRST = 6
"""Faults begin after the first steps, which are warm-up."""
SETTINGS = (*SMALL, "objective.tokens=9216", "journal.sample_every=4", "layout.fsdp=2", "data.prefetch=0")


class Fault(Observer):
    """Does its harm on one rank and writes down how much it was [ns]."""

    def __init__(self, rank: int, truth: Path):
        self.rank, self.truth = rank, truth
        self.total_ns = 0
        self.armed = False

    def on_phase(self, name: str, step: int) -> None:
        if dist.get_rank() == self.rank and step >= FIRST and name in ("forward", "data_wait"):
            if not self.armed:
                self.armed = True
                self.arm()
            if name == "forward":
                self.harm()
            self.truth.write_text(str(self.total_ns))

    def arm(self) -> None:
        """Once, before the first harm."""

    def harm(self) -> None:
        """Once a step, before its forward."""


class SlowLoader(Fault):
    """Every batch takes 30 ms longer to read."""

    def arm(self) -> None:
        inner = Loader.batch

        def batch(loader: Loader, *args: Any, **kwargs: Any) -> Any:
            begin = time.monotonic_ns()
            time.sleep(0.03)
            batch = inner(loader, *args, **kwargs)
            self.total_ns += time.monotonic_ns() - begin
            return batch

        Loader.batch = batch  # type: ignore[method-assign]


class Collector(Fault):
    """A collection over many live objects before every forward, and whatever the collector does by itself."""

    def arm(self) -> None:
        gc.callbacks.append(self._collecting)  # first: to make so many objects sets the collector off too
        self.kept = [[number] for number in range(400_000)]

    def harm(self) -> None:
        gc.collect()

    def _collecting(self, moment: str, info: dict[str, int]) -> None:
        self.total_ns += time.monotonic_ns() * (1 if moment == "stop" else -1)
        if moment == "stop":
            self.truth.write_text(str(self.total_ns))  # also after the last step: the end of a run makes garbage too


class Stopped(Fault):
    """SIGSTOP for 60 ms from another process, in the forward of a block."""

    def arm(self) -> None:
        inner = Block.forward
        first: list[Block] = []

        def forward(block: Block, *args: Any, **kwargs: Any) -> torch.Tensor:
            first[:] = first or [block]
            if block is first[0]:
                self._stop()
            return inner(block, *args, **kwargs)

        Block.forward = forward  # type: ignore[method-assign, assignment]

    def _stop(self) -> None:
        me, begin = os.getpid(), time.monotonic_ns()
        if (child := os.fork()) == 0:
            os.kill(me, signal.SIGSTOP)
            time.sleep(0.06)
            os.kill(me, signal.SIGCONT)
            os._exit(0)
        os.waitpid(child, 0)
        self.total_ns += time.monotonic_ns() - begin


class Sluggish(Fault):
    """The same block computes much more than it should."""

    def arm(self) -> None:
        inner = Block.forward
        first: list[Block] = []
        left = torch.ones(700, 700)

        def forward(block: Block, *args: Any, **kwargs: Any) -> torch.Tensor:
            first[:] = first or [block]
            if block is first[0]:
                begin = time.monotonic_ns()
                for _ in range(4):
                    torch.mm(left, left)
                self.total_ns += time.monotonic_ns() - begin
            return inner(block, *args, **kwargs)

        Block.forward = forward  # type: ignore[method-assign, assignment]


CAUSES: dict[type[Fault], tuple[set[str], str | None]] = {
    SlowLoader: ({"data_wait"}, "compute.data_wait"),
    Collector: ({"gc"}, "compute.gc"),
    Stopped: ({"launch_gap", "forward"}, "compute.launch_gap"),
    Sluggish: ({"forward", "contention"}, None),
}
"""What the books may call it, and the account that has its time; more computing is useful math as far as anybody
can see, so only the others' wait shows it."""


def check(books: Books, fault: Fault, truth_ns: int) -> None:
    names, account = CAUSES[type(fault)]
    blame = [cause for cause in books.causes if cause.rank == fault.rank and cause.doing in names]
    blamed_ns = sum(cause.ns for cause in blame)
    others_ns = max((c.ns for c in books.causes if c.rank != fault.rank and c.steps), default=0)
    assert blamed_ns > 0.5 * truth_ns, "the other rank waited for it"
    assert blamed_ns > others_ns, "and for nothing longer"
    if account is not None:
        on = {name.rpartition(":")[2]: device.accounts.get(account, 0) for name, device in books.devices.items()}
        usual_ns = min(ns for rank, ns in on.items() if rank != str(fault.rank))
        found_ns = on[str(fault.rank)] - usual_ns
        # what the other rank has of the same account is no part of the fault
        assert abs(found_ns - truth_ns) <= max(0.03 * truth_ns, 2e6 * STEPS, 0.5 * usual_ns)


def drill(tmp_path: Path, run_ranks: Any, kinds: tuple[type[Fault], ...], seed: int) -> None:
    dice = random.Random(seed)
    ranks = dice.sample(range(RANKS), len(kinds))
    faults = [kind(rank, tmp_path / f"truth-{rank}") for kind, rank in zip(kinds, ranks, strict=True)]
    run = make_run(tmp_path / "run", *SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        train(run_ranks, run, RANKS, faults)
    books = keep_books(read_run(run.path))
    assert sum(books.accounts.values()) == books.paid_ns
    assert sum(cause.ns for cause in books.causes) == books.accounts["comm.wait_slow_rank"]
    for fault in faults:
        check(books, fault, int(fault.truth.read_text()))


@pytest.mark.dist
@pytest.mark.parametrize(("kind", "seed"), [(Collector, 1), (SlowLoader, 2)])
def test_rank_cause_and_size_of_a_fault_are_found(tmp_path: Path, run_ranks: Any, kind: type[Fault], seed: int) -> None:
    drill(tmp_path, run_ranks, (kind,), seed)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.dist
@pytest.mark.parametrize("kind", CAUSES)
@pytest.mark.parametrize("seed", range(5))
def test_sweep_of_single_faults(tmp_path: Path, run_ranks: Any, kind: type[Fault], seed: int) -> None:
    drill(tmp_path, run_ranks, (kind,), 10 + seed)
