"""What a checkpoint holds, as one tree of named tensors."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.optim import Optimizer

from argosy.optim.state import create_state

Tree = dict[str, dict[str, torch.Tensor]]


def state_tree(named_parameters: Iterable[tuple[str, nn.Parameter]], optimizer: Optimizer, rank: int) -> Tree:
    """The very tensors of model and optimizer (not copies), and this rank's random state.

    Names do not depend on the layout. Sharded tensors stay DTensors, so that another layout can read them.
    """
    named = dict(named_parameters)
    return {
        "model": {name: parameter.detach() for name, parameter in named.items()},
        "optimizer": optimizer_tensors(named, optimizer),
        "rng": {f"rank-{rank}": torch.get_rng_state()},
    }


def optimizer_tensors(named_parameters: Mapping[str, nn.Parameter], optimizer: Optimizer) -> dict[str, torch.Tensor]:
    """Optimizer state as ``parameter.moment`` → tensor, also before the first step."""
    create_state(optimizer)
    names = {parameter: name for name, parameter in named_parameters.items()}
    return {
        f"{names[parameter]}.{key}": value
        for group in optimizer.param_groups
        for parameter in group["params"]
        for key, value in optimizer.state[parameter].items()
        if isinstance(value, torch.Tensor)
    }


def refresh(tree: Tree) -> None:
    """Take over into `tree` what has no tensor of its own to look at: this rank's random state."""
    for state in tree.get("rng", {}).values():
        state.copy_(torch.get_rng_state())
