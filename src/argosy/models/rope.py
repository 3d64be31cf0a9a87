"""Rotary position embedding (Su et al. 2021), with the frequency scaling of Llama 3.1."""

import math

import torch
from torch import Tensor

from argosy.models import cpu
from argosy.models.cpu import swap_halves
from argosy.recipe.model_table import ModelTable, RopeScaling


def frequencies(config: ModelTable, device: torch.device | None = None) -> Tensor:
    """Radians per position of each rotated pair: fp32 [head_dim / 2]."""
    assert config.head_dim is not None
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device) / config.head_dim
    plain = config.rope_theta**-exponents
    return plain if config.rope_scaling is None else scaled(plain, config.rope_scaling)


def scaled(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Frequencies after Llama 3.1 scaling; [head_dim / 2] to [head_dim / 2].

    Wavelengths that fit often into the original context are kept, those that hardly fit are stretched
    by ``factor``, and a linear ramp in turns per context joins them (Llama 3.1 reference model).
    """
    turns = scaling.original_positions * plain / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1) if high != low else (turns >= high).to(plain.dtype)
    return plain * (kept + (1 - kept) / scaling.factor)


def rotation_table(config: ModelTable, length: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Factors of x and of x with its halves swapped that turn a head: cos and ∓sin, two tensors [length, head_dim].

    Made anew in each forward (microseconds), so there is no buffer that meta-device construction could
    leave without contents. Angles are fp32; the table is in the compute dtype, like all that multiplies.
    """
    angles = torch.outer(torch.arange(length, dtype=torch.float32, device=device), frequencies(config, device))
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1).to(dtype), torch.cat((-sin, sin), dim=-1).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns pair (x[i], x[i + head_dim/2]) of every head by its position's angle.

    x is [B, S, heads, head_dim], cos and sin are those of :func:`rotation_table`, or [B, S, head_dim]. Halves rather
    than neighbours form a pair, as in the weights of Hugging Face.
    """
    if cpu.applies(x):
        return cpu.rotate(x, cos, sin)
    return x * cos.unsqueeze(-2) + swap_halves(x) * sin.unsqueeze(-2)
