"""The optimizer that a recipe asks for."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from argosy.optim.muon import Muon
from argosy.recipe.schema import OptimizerTable


def build_optimizer(
    named_parameters: Iterable[tuple[str, nn.Parameter]], table: OptimizerTable, fused: bool | None = None
) -> torch.optim.Optimizer:
    """The recipe's optimizer over named parameters (plain or DTensor); SGD is for equivalence checks.

    `fused` None takes the fused kernel of AdamW, which CPU and CUDA both have; False takes the foreach path.
    State is in the parameters' dtype. Build it after the parameters are where they shall stay.
    """
    named = list(named_parameters)
    betas = (table.beta1, table.beta2)
    if table.kind == "muon":
        matrices = hidden_matrices(named)
        others = [p for _, p in named if not any(p is matrix for matrix in matrices)]
        return Muon(
            matrices,
            decay_groups(others, table.weight_decay, "adamw"),
            lr=table.learning_rate,
            momentum=table.momentum,
            weight_decay=table.weight_decay,
            betas=betas,
            eps=table.eps,
        )
    groups = decay_groups((p for _, p in named), table.weight_decay, table.kind)
    if table.kind == "sgd":
        # Without momentum, L2 and decoupled decay are the same rule. The fused kernel does not know DTensor.
        return torch.optim.SGD(groups, lr=table.learning_rate, foreach=True)
    implementation: dict[str, Any] = {"fused": True} if fused is not False else {"foreach": True}
    return torch.optim.AdamW(groups, lr=table.learning_rate, betas=betas, eps=table.eps, **implementation)


def hidden_matrices(named_parameters: Iterable[tuple[str, nn.Parameter]]) -> list[nn.Parameter]:
    """Matrices inside the blocks: neither embeddings nor the head, whose rows are words and not directions."""
    return [p for name, p in named_parameters if p.ndim == 2 and name.startswith("blocks.")]


def decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float, rule: str) -> list[dict[str, Any]]:
    """Two groups of a `rule`: matrices with `weight_decay`, vectors (norms and biases) with none.

    Embeddings are matrices and decay with them: a tied one is the head as well, and decay is what bounds
    the norm of rows that are rarely seen. Empty groups are left out.
    """
    trained = [p for p in parameters if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay, "rule": rule},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0, "rule": rule},
    ]
    return [group for group in groups if group["params"]]


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """The learning rate of the next update, for all groups."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
