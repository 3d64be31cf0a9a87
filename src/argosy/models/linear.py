"""A linear layer whose fp32 weights are used in the dtype of its input."""

import torch.nn.functional as F
from torch import Tensor, nn

from argosy.models import cpu


class Linear(nn.Linear):
    """x @ weight.T + bias in the dtype of x.

    The cast sits here rather than in autocast so that a weight which FSDP2 has already gathered in
    bf16 gives the same numbers as the fp32 master weight of a single process.
    """

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.to(x.dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return cpu.linear(x, weight, bias) if cpu.applies(x) else F.linear(x, weight, bias)
