"""The norm of all gradients, over plain tensors and DTensors on any mix of meshes, and clipping to it."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from argosy.errors import UsageError

AllReduce = Callable[[Tensor, dist.ReduceOp.RedOpType, dist.ProcessGroup], object]
"""Reduces a tensor over a group in place."""


def _all_reduce(tensor: Tensor, op: dist.ReduceOp.RedOpType, group: dist.ProcessGroup) -> None:
    dist.all_reduce(tensor, op=op, group=group)


def global_norm(
    parameters: Iterable[Tensor],
    p: float = 2.0,
    *,
    over: Sequence[dist.ProcessGroup] = (),
    all_reduce: AllReduce = _all_reduce,
) -> Tensor:
    """p-norm (0 < p <= inf) of all gradients of `parameters` as one vector: an fp32 scalar, equal on all ranks.

    Each gradient counts once: shards are added over the axes of their mesh that split them, copies are not.
    One reduction is made for each axis, and for each group of `over`, whose ranks hold different parameters (pipeline
    stages). `all_reduce` lets the caller time them.
    A gradient that is not finite makes the norm not finite, for p = inf too.
    """
    if not p > 0:
        raise UsageError(f"the norm's order must be above 0, not {p}", do="use 2, or inf for the largest element")
    by_groups: dict[tuple[dist.ProcessGroup, ...], list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        if parameter.grad is not None:
            by_groups[splitting_groups(parameter.grad)].append(_local(parameter.grad))
    return combine({groups: _partial(gradients, p) for groups, gradients in by_groups.items()}, p, over, all_reduce)


def combine(
    parts_by_groups: Mapping[tuple[dist.ProcessGroup, ...], Tensor],
    p: float,
    over: Sequence[dist.ProcessGroup] = (),
    all_reduce: AllReduce = _all_reduce,
) -> Tensor:
    """The norm from each rank's sum of p-th powers (for p = inf: maximum), by the groups that split what is in it."""
    op = dist.ReduceOp.MAX if math.isinf(p) else dist.ReduceOp.SUM
    parts = list(parts_by_groups.values()) or [torch.zeros(())]
    for group in dict.fromkeys(group for groups in parts_by_groups for group in groups):
        chosen = [index for index, groups in enumerate(parts_by_groups) if group in groups]
        message = torch.stack([parts[index] for index in chosen])
        all_reduce(message, op, group)
        for index, part in zip(chosen, message, strict=True):
            parts[index] = part
    total = torch.stack(parts).max() if math.isinf(p) else torch.stack(parts).sum()
    for group in over:
        all_reduce(total, op, group)
    return total if math.isinf(p) else total.pow(1 / p)


@torch.no_grad()
def scale_to_norm_(parameters: Iterable[Tensor], norm: Tensor, max_norm: float) -> None:
    """Scales all gradients by max_norm / norm where that is below 1; `max_norm` 0 leaves them."""
    gradients = [_local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if gradients and max_norm > 0:
        torch._foreach_mul_(gradients, (max_norm / norm).clamp(max=1.0))


def _partial(gradients: list[Tensor], p: float) -> Tensor:
    """What is reduced over ranks: the sum of p-th powers, or for p = inf the maximum."""
    filled = [g for g in gradients if g.numel()]  # an empty shard has no maximum
    if not filled:
        return torch.zeros((), device=gradients[0].device)
    norms = torch._foreach_norm(filled, p, dtype=torch.float32)
    if math.isinf(p):
        # A reduction by maximum may drop NaN; infinity it keeps.
        return torch.stack(norms).max().nan_to_num(nan=math.inf, posinf=math.inf)
    return torch.stack(norms).pow(p).sum()


def splitting_groups(gradient: Tensor) -> tuple[dist.ProcessGroup, ...]:
    """The process groups of the axes that split this gradient."""
    if not isinstance(gradient, DTensor):
        return ()
    groups = []
    for axis, placement in enumerate(gradient.placements):
        if placement.is_partial():
            raise ValueError(f"gradient still to be reduced over axis {axis}: {gradient.placements}")
        if not isinstance(placement, Replicate):
            groups.append(gradient.device_mesh.get_group(axis))
    return tuple(groups)


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient
