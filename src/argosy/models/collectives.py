"""Collectives over the first dim, under the names that torch 2.11 to 2.14 have for them."""

import torch
import torch.distributed as dist
from torch import Tensor

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def all_gather(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """What all n ranks of `group` hold, in order of rank: [N, …] to [n, N, …]."""
    ranks = dist.get_world_size(group)
    # gloo wants as many dims on both sides.
    gathered = x.new_empty(ranks * x.size(0), *x.shape[1:])
    _all_gather(gathered, x.contiguous(), group=group)
    return gathered.unflatten(0, (ranks, -1))


def reduce_scatter(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Of the sum over all n ranks of `group`, this rank's part of the first dim: [n, N, …] to [N, …]."""
    part = torch.empty_like(x[0])
    _reduce_scatter(part, x.flatten(0, 1).contiguous(), group=group)
    return part
