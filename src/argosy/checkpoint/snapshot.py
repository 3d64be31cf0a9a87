"""Snapshots: a rank's state copied into shared memory at memory speed, and back."""

import hashlib
import json
from collections.abc import Mapping
from errno import ENOMEM
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from argosy.checkpoint.pieces import pieces
from argosy.checkpoint.plan import flat
from argosy.checkpoint.shards import Chunk
from argosy.checkpoint.shared_buffers import EMPTY, NOTE_BYTES, SharedBuffers, file_bytes
from argosy.checkpoint.snapshot_host import SnapshotHost
from argosy.checkpoint.state import Tree
from argosy.errors import StoppedError

_ALIGNMENT = 64
"""Of each tensor, as torch's own allocator has it."""


class Arrangement:
    """Which pieces of a tree lie on this rank, and where each lies in a buffer.

    The tensors must stay the same objects and be changed in place, as optimizers do.
    """

    def __init__(self, tree: Tree):
        self.live: dict[Chunk, Tensor] = {
            chunk: part for name, tensor in flat(tree).items() for chunk, part in pieces(name, tensor) if part.numel()
        }
        self.places: dict[Chunk, int] = {}
        """Position of a chunk's first byte."""
        self.bytes = 0
        """Room that one snapshot takes."""
        for chunk in self.live:
            self.places[chunk] = self.bytes
            self.bytes += -(-chunk.bytes // _ALIGNMENT) * _ALIGNMENT

    def identity(self, **facts: Any) -> str:
        """A digest of what must be equal for the bytes to mean the same in another process: the chunks and `facts`."""
        chunks = [(chunk.name, chunk.dtype, chunk.shape, chunk.offsets, chunk.sizes) for chunk in self.places]
        return hashlib.sha256(json.dumps([chunks, facts], sort_keys=True).encode()).hexdigest()

    def views(self, data: memoryview) -> list[Tensor]:
        """The bytes of a buffer as tensors, in the order of `live`."""
        whole = torch.frombuffer(data, dtype=torch.uint8) if self.bytes else torch.empty(0, dtype=torch.uint8)
        return [
            whole[at : at + chunk.bytes].view(self.live[chunk].dtype).view(chunk.sizes)
            for chunk, at in self.places.items()
        ]


class Snapshots:
    """Takes and restores snapshots of one rank's state."""

    def __init__(self, state: Arrangement, buffers: SharedBuffers, generation: int):
        """`buffers` is what :func:`hold` returned for this state; `generation` is the number of this attempt."""
        self.buffers = buffers
        self.places: Mapping[Chunk, int] = state.places
        self._generation = generation
        self._live = list(state.live.values())
        self._kept = [state.views(buffers.data(index)) for index in range(buffers.count)]
        self._pinned: int | None = None
        buffers.claim(generation)

    def take(self, step: int, note: dict[str, Any]) -> int | None:
        """Copy the state after `step` updates; the buffer that holds it, None while the only buffer is pinned.

        `note` is what goes with the tensors, as plain data. The newest other snapshot stays whole.
        Raises StoppedError when a newer attempt has taken over the memory.
        """
        steps = self.buffers.steps()
        if step in steps:
            return steps.index(step)
        free = [index for index in range(self.buffers.count) if index != self._pinned]
        if not free:
            return None
        if self.buffers.generation != self._generation:
            raise StoppedError(
                f"attempt {self.buffers.generation} has taken over from attempt {self._generation}", where="memory tier"
            )
        index = min(free, key=steps.__getitem__)
        self.buffers.invalidate(index)
        _copy(self._kept[index], self._live)
        self.buffers.commit(index, step, note)
        return index

    def pin(self, index: int) -> None:
        """Leave this buffer as it is until :meth:`unpin`: somebody reads it."""
        self._pinned = index

    def unpin(self) -> None:
        self._pinned = None

    def restore(self, step: int) -> dict[str, Any]:
        """Put the state after `step` updates back into the tree's tensors; the note that was taken with it."""
        index = self.buffers.steps().index(step)
        _copy(self._live, self._kept[index])
        return self.buffers.note(index)

    def forget(self) -> None:
        """Say that no buffer holds anything: what is there belongs to a past that the run has left."""
        for index in range(self.buffers.count):
            self.buffers.invalidate(index)

    def newest_common(self, group: dist.ProcessGroup | None) -> int | None:
        """The newest step that every rank of `group` (None: this one alone) holds whole; None when there is none."""
        mine = set(self.buffers.steps()) - {EMPTY}
        ranks: list[Any] = [mine]
        if group is not None:
            ranks = [None] * dist.get_world_size(group)
            dist.all_gather_object(ranks, mine, group=group)
        return max(set.intersection(*ranks), default=None)


def hold(host: SnapshotHost, rank: int, identity: str, data_bytes: int, room_bytes: int | None) -> SharedBuffers:
    """The memory that `host` holds for `rank` under this identity, with what it contains; else two new, empty buffers
    that it holds from now on, if they take no more than `room_bytes` (None: nobody knows).

    Raises OSError (ENOMEM) when there is not enough, StoppedError when the host does not answer.
    """
    if (fd := host.take(rank, identity)) is not None:
        return SharedBuffers(fd)
    host.drop(rank)  # what another layout left there would only take the room
    buffers = new_buffers(2, data_bytes, room_bytes)
    host.keep(rank, identity, buffers.fd)
    return buffers


def new_buffers(count: int, data_bytes: int, room_bytes: int | None) -> SharedBuffers:
    """Empty buffers; OSError (ENOMEM) where they would take more than `room_bytes`, or more than there is."""
    needed = file_bytes(count, NOTE_BYTES, data_bytes)
    if room_bytes is not None and needed > room_bytes:
        raise OSError(ENOMEM, f"{count} copies of the state take {needed:,} bytes, {max(0, room_bytes):,} may be taken")
    return SharedBuffers.create(count, data_bytes)


def _copy(to: list[Tensor], source: list[Tensor]) -> None:
    with torch.no_grad():
        torch._foreach_copy_(to, source, non_blocking=True)
    if any(tensor.is_cuda for tensor in (*to, *source)):
        torch.cuda.synchronize()
