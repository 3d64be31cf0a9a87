"""Which part of a tensor this rank holds, whatever split it: as rectangles of the whole tensor."""

from itertools import product

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from argosy.checkpoint.shards import Chunk
from argosy.models.split import owned


def pieces(name: str, tensor: Tensor) -> list[tuple[Chunk, Tensor]]:
    """The chunks that lie on this rank, each with the part of local memory that is its content (a view).

    A plain tensor is one chunk. Of a DTensor the local part is one rectangle for every mix of `Shard` and `Replicate`;
    a `_StridedShard` (FSDP over tensor parallelism, or a shard of flattened dims) can hold several.
    """
    dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    if not isinstance(tensor, DTensor):
        return [(Chunk(name, dtype, shape, (0,) * len(shape), shape), tensor.detach())]
    local = tensor.to_local().detach()
    found = []
    for runs in product(*(_runs(indices) for indices in _indices(tensor))):
        offsets = tuple(first for _, first, _ in runs)
        sizes = tuple(size for _, _, size in runs)
        part = local[tuple(slice(at, at + size) for at, _, size in runs)]
        found.append((Chunk(name, dtype, shape, offsets, sizes), part))
    return found


def buffer_of(tensor: Tensor) -> memoryview:
    """The bytes of a tensor in row-major order: its own memory where that is on the CPU and has this order."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _indices(tensor: DTensor) -> list[Tensor]:
    """For each dim: which indices of the whole tensor the local one has, in its order."""
    if tensor.device_mesh.get_coordinate() is None:
        return [torch.arange(0) for _ in tensor.shape]
    if any(placement.is_partial() for placement in tensor.placements):
        raise ValueError(f"a sum that is not made yet cannot be saved: {tensor.placements}")
    return owned(tensor)


def _runs(indices: Tensor) -> list[tuple[int, int, int]]:
    """Unbroken runs of `indices`: place in the local tensor, first index, length."""
    if not len(indices):
        return []
    breaks = (indices.diff() != 1).nonzero().flatten() + 1
    starts = [0, *breaks.tolist()]
    ends = [*breaks.tolist(), len(indices)]
    return [(start, int(indices[start]), end - start) for start, end in zip(starts, ends, strict=True)]
