"""Optimizer state before the first step, for a checkpoint to be loaded into or saved from.

torch makes missing state by a step of learning rate 0, which would count as an update.
"""

from typing import Any

import torch
from torch import nn


def create_state(optimizer: torch.optim.Optimizer) -> None:
    """Give every parameter without state the one that its group's rule starts from."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not optimizer.state[parameter]:
                optimizer.state[parameter].update(_fresh(group["rule"], parameter))


def _fresh(rule: str, parameter: nn.Parameter) -> dict[str, Any]:
    match rule:
        case "adamw":
            return {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        case "muon":
            return {"momentum_buffer": torch.zeros_like(parameter)}
        case "sgd":
            return {}
        case _:
            raise AssertionError(f"an optimizer rule without state: {rule}")
