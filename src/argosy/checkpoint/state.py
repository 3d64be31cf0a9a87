"""What a checkpoint holds, as one tree of named tensors."""

import torch
from torch import nn
from torch.optim import Optimizer

from argosy.optim.state import create_state

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
    """Optimizer state as ``parameter.moment`` → tensor, also before the first step."""
    create_state(optimizer)
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}.{key}": value
        for group in optimizer.param_groups
        for parameter in group["params"]
        for key, value in optimizer.state[parameter].items()
        if isinstance(value, torch.Tensor)
    }
