"""What a checkpoint holds, as one tree of named tensors."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

Tree = dict[str, dict[str, torch.Tensor]]


def state_tree(model: nn.Module, optimizer: Optimizer, rank: int) -> Tree:
    """The very tensors of model and optimizer (not copies), and this rank's random state.

    Names do not depend on the layout. Sharded tensors stay DTensors, so that another layout can read them.
    """
    return {
        "model": dict(model.state_dict()),
        "optimizer": optimizer_tensors(model, optimizer),
        "rng": {f"rank-{rank}": torch.get_rng_state()},
    }


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, torch.Tensor]:
    """Optimizer state as ``parameter.moment`` → tensor, created first where no step has made it yet.

    torch's own flattening makes missing state by a step of learning rate 0, which would count as an update.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    tensors: dict[str, torch.Tensor] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if isinstance(optimizer, torch.optim.AdamW) and not optimizer.state[parameter]:
                optimizer.state[parameter] = _fresh_adamw_state(parameter)
            for key, value in optimizer.state[parameter].items():
                if isinstance(value, torch.Tensor):
                    tensors[f"{names[parameter]}.{key}"] = value
    return tensors


def _fresh_adamw_state(parameter: nn.Parameter) -> dict[str, Any]:
    return {
        "step": torch.zeros((), dtype=torch.float32),
        "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
    }
