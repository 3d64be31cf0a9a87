"""The last gate before the weights: an update is made with finite gradients, or leaves no trace."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from argosy.optim.clip import scale_to_norm_


class Update(NamedTuple):
    """What became of a step's gradients."""

    applied: bool
    """False when they were not finite: weights, moments and step counters are as before."""
    norm: float
    """Norm of the gradients before clipping."""


def apply_update(
    optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor], norm: Tensor, max_norm: float
) -> Update:
    """Clips to `max_norm` (0: does not), updates, and clears the gradients; with a non-finite norm only clears.

    `norm` is that of :func:`argosy.optim.clip.global_norm`: equal on all ranks, so all decide alike.
    """
    value = norm.item()
    applied = math.isfinite(value)
    if applied:
        if value > max_norm:
            scale_to_norm_(parameters, norm, max_norm)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return Update(applied, value)
