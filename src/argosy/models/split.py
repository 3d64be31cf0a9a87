"""How tensor parallelism divides a module's matrices, declared beside each module.

A module says in ``tensor_split`` which of its linear layers are divided and how; what it does not name stays whole
on every tensor-parallel rank. :mod:`argosy.parallel.tensor` reads it, places the shards and moves activations.
"""

from enum import IntEnum

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Placement


class Split(IntEnum):
    """The dim of a weight [out, in] that is divided over the ranks."""

    ROWS = 0
    """Each rank computes a share of the outputs from the whole input; the bias is divided too."""
    COLUMNS = 1
    """Each rank adds its share of the inputs: the outputs of all ranks have to be summed."""


def local(parameter: Tensor) -> Tensor:
    """What this rank holds of `parameter`; its gradient flows back to the shard."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def divided_like(tensor: Tensor, part: Tensor) -> Tensor:
    """`part` as what this rank holds of a tensor of the shape and division of `tensor`."""
    if not isinstance(tensor, DTensor):
        return part
    return DTensor.from_local(
        part,
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )


def owned(tensor: Tensor) -> list[Tensor]:
    """For each dim of `tensor`, which indices of the whole this rank holds: int64, in the order of the local tensor.

    torch's own answer for a DTensor (``compute_local_shape_and_global_offset``) is wrong where FSDP2 has divided
    unevenly what tensor parallelism had divided before; so the two cuts are made again here, in their order.
    """
    whole = [torch.arange(size) for size in tensor.shape]
    if not isinstance(tensor, DTensor):
        return whole
    coordinate = tensor.device_mesh.get_coordinate()
    assert coordinate is not None
    cuts = sorted(enumerate(tensor.placements), key=lambda cut: _is_second_cut(cut[1]))
    for axis, placement in cuts:
        if not placement.is_replicate():
            dim = placement.dim  # type: ignore[attr-defined]
            pieces = whole[dim].chunk(tensor.device_mesh.size(axis))  # may be fewer than ranks
            here = coordinate[axis]
            whole[dim] = pieces[here] if here < len(pieces) else whole[dim][:0]
    return whole


def _is_second_cut(placement: Placement) -> bool:
    """Whether `placement` divides what a later axis of the mesh had divided before."""
    return getattr(placement, "split_factor", 1) > 1
