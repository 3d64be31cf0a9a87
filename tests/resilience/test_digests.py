"""One bit in one replica is found and its rank named; equal replicas and shards without a twin are left alone."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from argosy.resilience.digests import CorruptedState, Disagreement, StateDigests, compare, state_digest


def test_every_bit_counts() -> None:
    tensors = [torch.arange(12, dtype=torch.float32).view(3, 4), torch.zeros(5, dtype=torch.bfloat16)]
    before = state_digest(tensors)
    for tensor, integer in ((tensors[0], torch.int32), (tensors[1], torch.int16)):
        bits = tensor.view(-1).view(integer)
        for bit in (0, 9, 14):
            bits[-1] ^= 1 << bit
            assert state_digest(tensors) != before
            bits[-1] ^= 1 << bit
    assert state_digest(tensors) == before


@pytest.mark.parametrize(
    ("digests", "replicas", "found"),
    [
        ([1, 1, 1, 1], [0, 0, 0, 0], None),
        ([1, 2, 1, 2], [0, 1, 0, 1], None),
        ([1, 1, 7, 1], [0, 0, 0, 0], Disagreement((0, 1, 2, 3), 2)),
        ([1, 7], [0, 0], Disagreement((0, 1), None)),
        ([1, 1, 7, 8], [0, 0, 0, 0], Disagreement((0, 1, 2, 3), None)),
        ([1, 2, 3, 4], [0, 1, 2, 3], None),
        ([5, 1, 5, 1, 5, 9], [0, 1, 0, 1, 0, 1], Disagreement((1, 3, 5), 5)),
    ],
)
def test_the_majority_decides(digests: list[int], replicas: list[int], found: Disagreement | None) -> None:
    assert compare(digests, replicas) == found


def flip_one(guilty: int, step: int) -> list[Any]:
    """On each rank: five steps of equal state, in which one rank loses a bit; what it was told."""
    state = torch.ones(8)
    assert dist.group.WORLD is not None
    digests = StateDigests(2, [state], [0] * dist.get_world_size(), dist.group.WORLD, 0)
    for done in range(1, 6):
        state += 1
        if done == step and dist.get_rank() == guilty:
            state.view(torch.int32)[3] ^= 1
        try:
            digests.after_step(done)
        except CorruptedState as error:
            return [done, error.guilty_rank, error.good_until]
    return [None]


@pytest.mark.dist
@pytest.mark.parametrize(("guilty", "step"), [(0, 1), (1, 3), (2, 4)])
def test_all_ranks_learn_the_same(run_ranks: Any, guilty: int, step: int) -> None:
    found = step + step % 2
    assert run_ranks(3, flip_one, guilty, step) == [[found, guilty, found - 2]] * 3


@pytest.mark.dist
def test_equal_replicas_are_quiet(run_ranks: Any) -> None:
    assert run_ranks(2, flip_one, 5, 1) == [[None]] * 2


def start_different(guilty: int) -> list[Any]:
    state = torch.full((8,), 2.0 if dist.get_rank() == guilty else 1.0)
    assert dist.group.WORLD is not None
    try:
        StateDigests(20, [state], [0] * dist.get_world_size(), dist.group.WORLD, 40).check_start()
    except CorruptedState as error:
        return [error.guilty_rank, error.good_until, "started so" in str(error)]
    return [None]


@pytest.mark.dist
def test_replicas_that_start_different_are_refused(run_ranks: Any) -> None:
    assert run_ranks(3, start_different, 1) == [[1, 0, True]] * 3
    assert run_ranks(2, start_different, 7) == [[None]] * 2
