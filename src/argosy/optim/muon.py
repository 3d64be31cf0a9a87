"""Muon: momentum whose update is orthogonal, for the matrices inside the blocks; AdamW for everything else.

Jordan 2024, "Muon: an optimizer for hidden layers in neural networks". The update of a matrix of shape [m, n] is
scaled by 0.2 · sqrt(max(m, n)), which gives its elements the size of AdamW's (Liu et al. 2025, "Muon is scalable for
LLM training"), so one learning rate serves both rules.

``torch.optim.Muon`` knows no sharded matrix; here a shard's momentum stays sharded and only the update is gathered.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration; chosen by Jordan for the steepest slope at 0."""
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """`matrices` take orthogonal updates; `others` are parameter groups of AdamW."""

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        others: list[dict[str, Any]],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        betas: tuple[float, float],
        eps: float,
    ):
        group = {"params": list(matrices), "rule": "muon", "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([group], {"lr": lr})
        self._matrices = self.param_groups[0]
        self._adamw = torch.optim.AdamW(others, lr=lr, betas=betas, eps=eps, fused=True)
        self._adamw.state = self.state  # one state and one list of groups, as of a single optimizer
        self.param_groups += self._adamw.param_groups

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        group = self._matrices
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            momentum = state["momentum_buffer"].lerp_(parameter.grad, 1 - group["momentum"])
            update = parameter.grad.lerp(momentum, group["momentum"])  # Nesterov
            scale = 0.2 * math.sqrt(max(parameter.shape))
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(_orthogonal(update), alpha=-group["lr"] * scale)
        self._adamw.step()


def _orthogonal(update: Tensor) -> Tensor:
    """:func:`orthogonalise` of the whole matrix; of a shard's part, its part of the result."""
    if not isinstance(update, DTensor):
        return orthogonalise(update)
    whole = orthogonalise(update.full_tensor())
    # Every rank has the whole result: nothing is sent to cut it.
    return distribute_tensor(whole, update.device_mesh, update.placements, src_data_rank=None)


def orthogonalise(matrix: Tensor) -> Tensor:
    """The nearest orthogonal matrix to `matrix` [m, n], roughly: singular values come to lie near 1.

    Newton-Schulz iteration X ← aX + (bA + cA²)X with A = XXᵀ, in bf16; returns the dtype of `matrix`.
    """
    a, b, c = _COEFFICIENTS
    wide = matrix if matrix.size(0) <= matrix.size(1) else matrix.T  # the smaller Gram matrix is the cheaper
    x = (wide / wide.norm().clamp(min=1e-7)).bfloat16()  # spectral norm at most 1
    for _ in range(_ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide is matrix else x.T).to(matrix.dtype)
