"""The device's time, laid over the host's: exact on made-up activities, and right on real profiled steps."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from argosy.journal.intervals import EMPTY, intersect, length, subtract, union
from argosy.journal.reader import read_run
from argosy.ledger.books import keep_books
from argosy.models.decoder import Block
from argosy.training.device_time import Activity, divide, module_times
from argosy.training.observers import Observer
from tiny_runs import SMALL, make_run, train

INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))), max_size=8
)


@given(INTERVALS, INTERVALS)
def test_interval_arithmetic_is_that_of_sets_of_moments(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    def moments(intervals: Any) -> set[int]:
        return {moment for begin, end in intervals for moment in range(begin, end)}

    x, y = union(a), union(b)
    assert moments(x.tolist()) == moments(a)
    assert (x[1:, 0] > x[:-1, 1]).all()
    assert moments(intersect(x, y).tolist()) == moments(a) & moments(b)
    assert moments(subtract(x, y).tolist()) == moments(a) - moments(b)
    assert length(x) == len(moments(a))


def sets(**phases: tuple[int, int]) -> dict[str, np.ndarray]:
    return {name: union([at]) for name, at in phases.items()}


def test_streams_are_united_and_only_exposed_communication_and_copies_are_charged() -> None:
    host = sets(data_wait=(0, 100), forward=(100, 200), backward=(200, 400), optimizer=(400, 500))
    seen = Activity(
        math=[(20, 60), (120, 220), (150, 260), (300, 340)],  # two streams overlap from 150 to 220
        copies=[(50, 80), (330, 350)],
        syncs=[(255, 290)],
        allocations=[(360, 380)],
    )
    seen.collectives["fsdp"] = [(240, 280), (335, 345)]
    found = divide(host, seen, EMPTY, on_cpu=False)
    assert sum(found.values()) == 500
    assert found["data_wait", "forward"] == 40, "the queue still had work while the host waited"
    assert found["data_wait", "h2d_copy"] == 20
    assert found["data_wait", "data_wait"] == 40
    assert found["forward", "launch_gap"] == 20
    assert found["backward", "comm.exposed.fsdp"] == 20 + 5
    assert found["backward", "h2d_copy"] == 5
    assert found["backward", "sync_point"] == 20, "the queue drained while the host waited for it"
    assert found["backward", "allocator"] == 20
    assert found["backward", "launch_gap"] == 30
    assert found["optimizer", "launch_gap"] == 100


def test_on_a_cpu_gaps_are_gaps_and_what_had_no_processor_is_not_counted_twice() -> None:
    ms = 1_000_000
    host = sets(forward=(0, 100 * ms), backward=(100 * ms, 200 * ms))
    seen = Activity(math=[(0, 40 * ms), (90 * ms, 100 * ms), (101 * ms, 200 * ms)])
    repeated = union([(110 * ms, 140 * ms)])
    found = divide(host, seen, repeated, on_cpu=True, off_cpu_ns=50 * ms)
    assert found["forward", "forward"] == 50 * ms
    assert found["backward", "recompute"] == 30 * ms
    assert abs(found["forward", "launch_gap"] + found["backward", "launch_gap"] - ms) < 10
    assert abs(sum(found.values()) - 150 * ms) < 10
    assert sum(divide(host, seen, repeated, on_cpu=True).values()) == 200 * ms


def test_gradients_belong_to_the_module_whose_operation_they_are_of() -> None:
    host = sets(forward=(0, 100), backward=(100, 300))
    seen = Activity(
        math=[(5, 20), (30, 60), (100, 290)],
        forward=[(6, 1), (31, 2)],
        backward=[(110, 150, 2), (160, 260, 1)],
    )
    found = module_times([("a", 0, 25), ("b", 25, 70), ("a", 160, 200)], host, seen)
    assert (found["a"].forward, found["a"].idle, found["a"].recompute) == (15, 10, 40)
    assert (found["b"].forward, found["b"].backward) == (30, 40)
    assert found["a"].backward == 60, "what is repeated in backward is recomputation"


SLEEP_S = 0.05


class SleepingBlock(Observer):
    """Slips a sleep into the forward of the first block of rank 1; the journal knows nothing of it."""

    def __init__(self) -> None:
        self.done = False

    def on_phase(self, name: str, step: int) -> None:
        if self.done or name != "forward" or dist.get_rank() != 1:
            return
        first: list[Block] = []
        inner = Block.forward

        def forward(block: Block, *args: Any, **kwargs: Any) -> torch.Tensor:
            if not first:
                first.append(block)
            if block is first[0]:
                time.sleep(SLEEP_S)
            return inner(block, *args, **kwargs)

        Block.forward = forward  # type: ignore[method-assign, assignment]
        self.done = True


@pytest.mark.dist
@pytest.mark.parametrize("threads", [1, 2])
def test_a_sleep_inside_a_blocks_forward_leaves_useful(tmp_path: Path, run_ranks: Any, threads: int) -> None:
    steps = 24
    settings = ("objective.tokens=9216", "journal.sample_every=4", "journal.profile_share=0.5", "layout.fsdp=2")
    run = make_run(tmp_path / "run", *SMALL, *settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", str(threads))
        train(run_ranks, run, 2, [SleepingBlock()])
    books = keep_books(read_run(run.path))
    slow, other = (next(device for name, device in books.devices.items() if name.endswith(f"cpu:{r}")) for r in (1, 0))
    useful = [device.accounts["useful.model_math"] for device in (slow, other)]
    slept_ns = steps * SLEEP_S * 1e9
    assert useful[0] - useful[1] < 0.1 * slept_ns, "of what was slept, nine tenths left useful"
    # The rest is in the first steps, as their warm-up: on a busy machine up to half of so short a run.
    assert slow.accounts["compute.launch_gap"] > 0.3 * slept_ns
    # ...and the other rank's wait for it has its name
    worst = books.causes[0]
    assert worst.rank == 1
    assert worst.ns > 0.5 * slept_ns
