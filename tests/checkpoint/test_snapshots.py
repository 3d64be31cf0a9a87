"""A state that went into shared memory comes back bit by bit, on one rank and on several."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from argosy.checkpoint.shared_buffers import SharedBuffers
from argosy.checkpoint.snapshot import Arrangement, Snapshots, hold, new_buffers
from argosy.checkpoint.snapshot_host import SnapshotHost
from argosy.checkpoint.state import Tree
from argosy.errors import StoppedError
from programs import Split, make_state, model_table


def odd_tree() -> Tree:
    """All that a tree may hold: several types, a scalar, nothing, a transposed view."""
    return {
        "model": {
            "wide": torch.arange(15, dtype=torch.float32).reshape(3, 5),
            "turned": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t(),
            "none": torch.empty(0, 4),
        },
        "optimizer": {"wide.step": torch.tensor(3.0), "flags": torch.tensor([True, False, True])},
        "rng": {"rank-0": torch.get_rng_state()},
    }


def change(tree: Tree) -> None:
    for tensors in tree.values():
        for tensor in tensors.values():
            tensor.copy_(tensor.to(torch.float64) * 2 + 1)


def copies(tree: Tree) -> dict[str, torch.Tensor]:
    return {f"{part}.{name}": tensor.clone() for part, tensors in tree.items() for name, tensor in tensors.items()}


def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def of(tree: Tree, count: int = 2, generation: int = 1) -> Snapshots:
    state = Arrangement(tree)
    return Snapshots(state, SharedBuffers.create(count, state.bytes), generation)


def test_everything_comes_back() -> None:
    tree = odd_tree()
    snapshots = of(tree)
    states = {}
    for step in (1, 2, 3):
        states[step] = copies(tree)
        snapshots.take(step, {"training": step})
        change(tree)
    for step in (2, 3):
        assert snapshots.restore(step) == {"training": step}
        assert equal(copies(tree), states[step])
    with pytest.raises(ValueError, match="1 is not in list"):
        snapshots.restore(1)


def test_a_step_is_taken_once() -> None:
    tree = odd_tree()
    snapshots = of(tree)
    first = snapshots.take(4, {"n": 1})
    change(tree)
    assert snapshots.take(4, {"n": 2}) == first
    assert snapshots.restore(4) == {"n": 1}


def test_a_pinned_buffer_is_left_alone() -> None:
    tree = odd_tree()
    snapshots = of(tree)
    pinned = snapshots.take(1, {})
    assert pinned is not None
    snapshots.pin(pinned)
    for step in (2, 3, 4):
        snapshots.take(step, {})
    assert sorted(snapshots.buffers.steps()) == [1, 4]
    snapshots.unpin()
    snapshots.take(5, {})
    assert sorted(snapshots.buffers.steps()) == [4, 5]
    single = of(tree, count=1)
    single.pin(single.take(1, {}) or 0)
    assert single.take(2, {}) is None


def test_an_older_attempt_writes_nothing_any_more() -> None:
    tree = odd_tree()
    old = of(tree)
    old.take(1, {})
    new = Snapshots(Arrangement(tree), SharedBuffers(os.dup(old.buffers.fd)), generation=2)
    with pytest.raises(StoppedError, match="attempt 2 has taken over from attempt 1"):
        old.take(2, {})
    assert new.newest_common(None) == 1


def test_another_shape_type_name_or_fact_is_another_identity() -> None:
    base = {"model": {"a": torch.zeros(2, 3)}}
    others = [
        {"model": {"a": torch.zeros(3, 2)}},
        {"model": {"a": torch.zeros(2, 3, dtype=torch.float64)}},
        {"model": {"b": torch.zeros(2, 3)}},
        {"optimizer": {"a": torch.zeros(2, 3)}},
    ]
    identities = [Arrangement(tree).identity(rank=0) for tree in (base, *others)]
    identities += [Arrangement(base).identity(rank=1), Arrangement(base).identity(rank=0, world_size=2)]
    assert len(set(identities)) == len(identities)
    assert Arrangement({"model": {"a": torch.ones(2, 3)}}).identity(rank=0) == identities[0]


def test_no_more_memory_is_taken_than_allowed() -> None:
    with pytest.raises(OSError, match="2 copies of the state take"):
        new_buffers(2, 1000, room_bytes=1000)


def taken_lost_and_restored(split: Split, name: str) -> list[tuple[int | None, bool, bool]]:
    """Snapshots of steps 1 and 2 are taken; the last rank loses its second as by a kill; all come back to one step."""
    rank = dist.get_rank()
    _, _, tree = make_state(split, model_table())
    state = Arrangement(tree)
    with SnapshotHost.start(name) as host:
        snapshots = Snapshots(state, hold(host, rank, state.identity(rank=rank), state.bytes, None), 1)
        states = {}
        for step in (1, 2):
            for chunk, part in state.live.items():
                part.copy_(part.to(torch.float64) + len(chunk.name) + step)
            states[step] = [part.clone() for part in state.live.values()]
            snapshots.take(step, {})
        found = []
        for lost in (False, True):
            if lost and rank == dist.get_world_size() - 1:
                snapshots.buffers.invalidate(snapshots.buffers.steps().index(2))
            for part in state.live.values():
                part.zero_()
            again = Snapshots(state, hold(host, rank, state.identity(rank=rank), state.bytes, None), 2)
            step = again.newest_common(dist.group.WORLD)
            assert step is not None
            again.restore(step)
            same = all(map(torch.equal, state.live.values(), states[step]))
            found.append((step, same, any(bool(part.any()) for part in state.live.values())))
    return found


@pytest.mark.dist
@pytest.mark.parametrize(
    "split", [Split(), Split(fsdp=2), Split(dp=2), Split(dp=2, fsdp=2), Split(tp=2, fsdp=2)], ids=str
)
def test_all_ranks_come_back_to_the_newest_step_that_all_have(tmp_path: Path, run_ranks: Any, split: Split) -> None:
    name = f"argosy-test/{tmp_path}"
    with SnapshotHost.start(name) as host:
        for found in run_ranks(split.ranks, taken_lost_and_restored, split, name):
            assert found == [(2, True, True), (1, True, True)]
        assert {len(held.steps) for held in host.held()} == {1, 2} if split.ranks > 1 else {1}
        host.stop()
