"""Initial weights that do not depend on how the model is split.

Each element's value is a function of the seed, the parameter's name and the element's index in the
whole parameter. A rank computes its own shard and nothing else, and all layouts start from equal bits.
"""

import hashlib
import math

import torch
from torch import Tensor

from argosy.models.decoder import Decoder
from argosy.models.split import local, owned
from argosy.recipe.model_table import ModelTable

_CHUNK_ELEMENTS = 1 << 15  # the handful of 8-byte temporaries stays in the second-level cache

_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")  # parts of names that torch.compile and recomputation add


@torch.no_grad()
def init_weights(model: Decoder, seed: int) -> None:
    """Fills every parameter in place: matrices normal, norms 1, biases 0.

    Works on plain tensors and on DTensor shards, on any device. Matrices have the standard deviation
    ``init_std``; those that write into the residual stream have it divided by sqrt(2 · layers), so that
    the sum of all blocks' outputs keeps its size (GPT-2, Radford et al. 2019, section 2.3).
    """
    for name, parameter in model.named_parameters():
        name = parameter_name(name)
        if name.endswith(".bias"):
            parameter.zero_()
        elif parameter.ndim == 1:
            parameter.fill_(1.0)
        else:
            fill_normal_(parameter, standard_deviation(name, model.config), random_key(seed, name))


def parameter_name(name: str) -> str:
    """The name of a parameter without what wrappers of its module have added."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def standard_deviation(name: str, config: ModelTable) -> float:
    """Standard deviation of the initial values of the matrix called `name`."""
    writes_to_residual = name.endswith(("attention.o.weight", "mlp.down.weight"))
    return config.init_std / math.sqrt(2 * config.layers) if writes_to_residual else config.init_std


def random_key(seed: int, purpose: str) -> int:
    """A 64-bit key (signed, as int64 tensors need it) for the stream of random numbers of one purpose."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def fill_normal_(parameter: Tensor, std: float, key: int) -> None:
    """Fills a tensor, or the local shard of a DTensor, with normal values of mean 0.

    Memory beyond the parameter is bounded by a fixed number of elements.
    """
    mine = local(parameter)
    if mine.numel() == 0:
        return
    # Element (i, j, …) of the whole has the index sum of owned[dim][i] · stride[dim].
    first, *rest = (
        index.to(mine.device) * stride
        for index, stride in zip(owned(parameter), _row_major(parameter.shape), strict=True)
    )
    within_row = torch.zeros((), dtype=torch.int64, device=mine.device)
    for index in rest:
        within_row = within_row[..., None] + index
    rows = max(1, _CHUNK_ELEMENTS // max(1, within_row.numel()))
    for start in range(0, len(mine), rows):
        index = first[start : start + rows].view(-1, *[1] * len(rest)) + within_row
        mine[start : start + rows] = standard_normal(index, key).mul_(std)


def standard_normal(index: Tensor, key: int) -> Tensor:
    """Normal float64 values of any shape; element x is a function of (key, index[x]). Overwrites `index` (int64).

    A 64-bit hash gives the two uniform numbers of the Box–Muller transform. It is computed in float64 so that a
    device's or a vector unit's last bit of log and cos vanishes when the value is rounded to fp32. The radius comes
    from 32 bits: no value is beyond 6.7.
    """
    bits = splitmix64_(index.mul_(_GOLDEN).add_(key))
    angle = bits.bitwise_and(_LOW_32).to(torch.float64).mul_(2 * math.pi / 2**32)
    uniform = (bits >> 32).to(torch.float64).add_(2**31 + 1).mul_(1 / 2**32)  # in (0, 1]
    return uniform.log_().mul_(-2).sqrt_().mul_(angle.cos_())


def splitmix64_(z: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014) in place on int64, whose products wrap as needed."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z.bitwise_xor_(_shift_right(z, shift)).mul_(_signed(factor))
    return z.bitwise_xor_(_shift_right(z, 31))


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """Logical shift; that of int64 copies the sign."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_LOW_32 = (1 << 32) - 1


def _row_major(shape: torch.Size) -> list[int]:
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
