"""Plain data parallelism: whole replicas whose gradients are summed in one flat all-reduce.

For models that fit on each rank. ``DistributedDataParallel`` divides by the number of ranks and reduces per
25 MB bucket inside backward; for small models one large collective after backward is faster (2.0 to 2.8 times
FSDP at d = 128), and a sum is what the globally normalised loss needs.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from argosy.models.split import divided_like, local


class FlatGradients:
    """Gradients of `parameters` as views of one buffer, so that summing them over ranks is one collective."""

    def __init__(self, parameters: Sequence[nn.Parameter], group: dist.ProcessGroup, dtype: torch.dtype):
        self._parameters = list(parameters)
        self._group = group
        self._dtype = dtype
        mine = [local(p.detach()) for p in self._parameters]
        self._flat = torch.zeros(sum(p.numel() for p in mine), dtype=mine[0].dtype, device=mine[0].device)
        pieces = self._flat.split([p.numel() for p in mine])
        self._views = [
            divided_like(parameter, piece.view(part.shape))
            for parameter, part, piece in zip(self._parameters, mine, pieces, strict=True)
        ]

    def clear(self) -> None:
        """Zero all gradients; backward then accumulates into the buffer."""
        self._flat.zero_()
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view

    def sum_over_ranks(self) -> None:
        """Replace each rank's gradients by their sum."""
        if self._dtype == self._flat.dtype:
            dist.all_reduce(self._flat, group=self._group)
        else:
            narrow = self._flat.to(self._dtype)
            dist.all_reduce(narrow, group=self._group)
            self._flat.copy_(narrow)
