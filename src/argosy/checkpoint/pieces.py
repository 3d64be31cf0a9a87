"""Which part of a tensor this rank holds, whatever split it: as rectangles of the whole tensor."""

from itertools import product

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from argosy.checkpoint.shards import Chunk


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
    mesh, dims = tensor.device_mesh, [torch.arange(size) for size in tensor.shape]
    if mesh.get_coordinate() is None:
        return [indices[:0] for indices in dims]
    for axis, placement in enumerate(tensor.placements):
        if isinstance(placement, Partial):
            raise ValueError(f"a sum that is not made yet cannot be saved: {tensor.placements}")
        if isinstance(placement, Replicate):
            continue
        assert isinstance(placement, Shard | _StridedShard)
        # DTensor's own splitting, applied to the indices instead of the values, has the last word.
        along = dims[placement.dim].view([-1 if dim == placement.dim else 1 for dim in range(tensor.ndim)])
        parts, _ = placement._split_tensor(along, mesh.size(axis), with_padding=False, contiguous=False)
        dims[placement.dim] = parts[mesh.get_local_rank(axis)].reshape(-1)
    return dims


def _runs(indices: Tensor) -> list[tuple[int, int, int]]:
    """Unbroken runs of `indices`: place in the local tensor, first index, length."""
    if not len(indices):
        return []
    breaks = (indices.diff() != 1).nonzero().flatten() + 1
    starts = [0, *breaks.tolist()]
    ends = [*breaks.tolist(), len(indices)]
    return [(start, int(indices[start]), end - start) for start, end in zip(starts, ends, strict=True)]
