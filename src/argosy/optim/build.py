"""The optimizer that a recipe asks for."""

from typing import Any

import torch
from torch import nn

from argosy.recipe.schema import OptimizerTable


def build_optimizer(model: nn.Module, table: OptimizerTable, fused: bool | None = None) -> torch.optim.Optimizer:
    """AdamW, or plain SGD for equivalence checks, over all parameters of `model` (plain or DTensor).

    `fused` None takes the fused kernel, which CPU and CUDA both have; False takes the foreach path.
    State is in the parameters' dtype. Build it after the parameters are where they shall stay.
    """
    groups = decay_groups(model, table.weight_decay)
    if table.kind == "sgd":
        # Without momentum, L2 and decoupled decay are the same rule. The fused kernel does not know DTensor.
        return torch.optim.SGD(groups, lr=table.learning_rate, foreach=True)
    implementation: dict[str, Any] = {"fused": True} if fused is not False else {"foreach": True}
    return torch.optim.AdamW(
        groups, lr=table.learning_rate, betas=(table.beta1, table.beta2), eps=table.eps, **implementation
    )


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: matrices with `weight_decay`, vectors (norms and biases) with none.

    Embeddings are matrices and decay with them: a tied one is the head as well, and decay is what bounds
    the norm of rows that are rarely seen. Empty groups are left out.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """The learning rate of the next update, for all groups."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
