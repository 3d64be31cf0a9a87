"""The optimizer's step inside the backward pass: each weight is updated once its gradient is summed, and that is freed.

So all gradients never exist at once; their memory is that of one FSDP group. The price: the global norm is known only
afterwards, so nothing can be clipped, and an update with a gradient that is not finite cannot be left out as a whole.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from argosy.models.split import local
from argosy.optim.clip import combine, splitting_groups


class UpdateInBackward:
    """Updates `named_parameters` with `optimizer` as their gradients come; for one backward pass per step."""

    def __init__(self, named_parameters: Iterable[tuple[str, nn.Parameter]], optimizer: Optimizer):
        self._optimizer = optimizer
        self._squares: dict[tuple[dist.ProcessGroup, ...], list[Tensor]] = defaultdict(list)
        for name, parameter in named_parameters:
            parameter.register_post_accumulate_grad_hook(partial(self._update, name))

    @torch.no_grad()
    def _update(self, name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        square = torch.linalg.vector_norm(local(parameter.grad), dtype=torch.float32).square()
        if not torch.isfinite(square):
            raise FloatingPointError(
                f"the gradient of {name} is not finite, and weights before it in the backward pass are updated already"
            )
        self._squares[splitting_groups(parameter.grad)].append(square)
        self._optimizer.step()  # no other parameter has a gradient now
        parameter.grad = None

    def norm(self) -> Tensor:
        """2-norm of the gradient of the last pass; collective, equal on all ranks."""
        norm = combine({groups: torch.stack(squares).sum() for groups, squares in self._squares.items()}, 2.0)
        self._squares.clear()
        return norm
