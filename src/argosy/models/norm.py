"""Normalisation over the last dim; statistics in fp32, parameters used in the dtype of the activations."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from argosy.models import cpu
from argosy.models.split import local
from argosy.recipe.model_table import ModelTable


class RMSNorm(nn.Module):
    """x / rms(x) · weight over the last dim (Zhang & Sennrich 2019)."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        weight = local(self.weight).to(x.dtype)
        if cpu.applies(x):
            return cpu.rms_norm(x, weight, self.eps)
        return F.rms_norm(x, weight.shape, weight, self.eps)


class LayerNorm(nn.Module):
    """(x - mean) / std · weight + bias over the last dim (Ba et al. 2016)."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = local(self.weight).to(x.dtype), local(self.bias).to(x.dtype)
        return F.layer_norm(x, weight.shape, weight, bias, self.eps)


def make_norm(config: ModelTable) -> nn.Module:
    """The norm of the residual stream that the recipe asks for."""
    kind = {"rmsnorm": RMSNorm, "layernorm": LayerNorm}[config.norm]
    return kind(config.hidden_size, config.norm_eps)
