"""Which part of a tensor this rank holds, whatever split it: as rectangles of the whole tensor."""

import math
from itertools import product

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

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
    indices = _stripes(tensor) if _has_stripes(tensor) else owned(tensor)
    if tuple(map(len, indices)) != tuple(tensor.to_local().shape):
        raise ValueError(f"which part of the tensor is this? {tensor.placements}, {list(tensor.to_local().shape)} here")
    return indices


def _has_stripes(tensor: DTensor) -> bool:
    """Whether a `_StridedShard` is a shard of flattened dims, and not FSDP2's cut of what later axes had cut before."""
    sizes = tensor.device_mesh.shape
    for axis, placement in enumerate(tensor.placements):
        if isinstance(placement, _StridedShard):
            later = zip(tensor.placements[axis + 1 :], sizes[axis + 1 :], strict=True)
            if placement.split_factor != math.prod(size for other, size in later if other.is_shard(placement.dim)):
                return True
    return False


def _stripes(tensor: DTensor) -> list[Tensor]:
    """:func:`~argosy.models.split.owned` by DTensor's own splitting, done to the indices instead of the values."""
    dims = [torch.arange(size) for size in tensor.shape]
    for axis, placement in enumerate(tensor.placements):
        if isinstance(placement, Shard | _StridedShard):
            along = dims[placement.dim].view([-1 if dim == placement.dim else 1 for dim in range(tensor.ndim)])
            parts, _ = placement._split_tensor(along, tensor.device_mesh.size(axis), with_padding=False)
            dims[placement.dim] = parts[tensor.device_mesh.get_local_rank(axis)].reshape(-1)
    return dims


def _runs(indices: Tensor) -> list[tuple[int, int, int]]:
    """Unbroken runs of `indices`: place in the local tensor, first index, length."""
    if not len(indices):
        return []
    breaks = (indices.diff() != 1).nonzero().flatten() + 1
    starts = [0, *breaks.tolist()]
    ends = [*breaks.tolist(), len(indices)]
    return [(start, int(indices[start]), end - start) for start, end in zip(starts, ends, strict=True)]
