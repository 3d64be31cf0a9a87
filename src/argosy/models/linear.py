"""A linear layer whose fp32 weights are used in the dtype of its input."""

import torch.nn.functional as F
from torch import Tensor, nn

from argosy.models import cpu
from argosy.models.split import local


class Linear(nn.Linear):
    """x @ weight.T + bias in the dtype of x.

    The cast sits here rather than in autocast so that a weight which FSDP2 has already gathered in
    bf16 gives the same numbers as the fp32 master weight of a single process.
    """

    bias_share = 1
    """0 on those ranks that only add to a sum over ranks in which another one has counted the bias."""

    def forward(self, x: Tensor) -> Tensor:
        weight = local(self.weight).to(x.dtype)
        bias = None if self.bias is None else local(self.bias).to(x.dtype)
        if bias is not None and not self.bias_share:
            bias = bias * 0  # all ranks have the same graph, and a gradient for each parameter
        if cpu.applies(x):
            return cpu.linear(x, weight, bias)
        if cpu.compiles(x):
            return cpu.compiled_linear(x, weight, bias)
        return F.linear(x, weight, bias)
