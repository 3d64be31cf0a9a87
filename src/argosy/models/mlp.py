"""The position-wise network of a block."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from argosy.models.linear import Linear
from argosy.models.split import Split
from argosy.recipe.model_table import ModelTable


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)) (Shazeer 2020)."""

    tensor_split: ClassVar = {"gate": Split.ROWS, "up": Split.ROWS, "down": Split.COLUMNS}

    def __init__(self, config: ModelTable):
        super().__init__()
        bias = config.bias == "all"
        self.gate = Linear(config.hidden_size, config.ffn_size, bias=bias)
        self.up = Linear(config.hidden_size, config.ffn_size, bias=bias)
        self.down = Linear(config.ffn_size, config.hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class GELU(nn.Module):
    """down(gelu(up(x))) with the tanh approximation, as in GPT-2."""

    tensor_split: ClassVar = {"up": Split.ROWS, "down": Split.COLUMNS}

    def __init__(self, config: ModelTable):
        super().__init__()
        bias = config.bias == "all"
        self.up = Linear(config.hidden_size, config.ffn_size, bias=bias)
        self.down = Linear(config.ffn_size, config.hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


def make_mlp(config: ModelTable) -> nn.Module:
    """The MLP that the recipe asks for."""
    return {"swiglu": SwiGLU, "gelu": GELU}[config.activation](config)
