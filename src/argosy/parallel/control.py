"""Small sums over all ranks that steer a step: counts, losses, wishes."""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def sum_over_ranks(values: Sequence[float], group: dist.ProcessGroup | None) -> list[float]:
    """Element-wise sum in float64 over a gloo `group`; None for a single rank."""
    if group is None:
        return [float(value) for value in values]
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total, group=group)
    return total.tolist()
