"""Which rank's own gradient is not finite, before the sum over ranks hands it to all.

Replicas have their own gradients in one place after backward. FSDP2 sums each block's gradients during backward and
frees the whole ones at once, so there each parameter is looked at in the moment in which its own gradient is complete:
a hook on the unsharded parameter, which exists only inside forward and is therefore hooked there, once.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


class LocalGradients:
    """Norm of this rank's own gradient of the step under way."""

    def __init__(self, models: Iterable[nn.Module]):
        self._norms: dict[Tensor, Tensor] = {}
        self._hooked: set[int] = set()
        for model in models:
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.register_forward_pre_hook(self._hook_parameters)

    def norm(self, parameters: Iterable[nn.Parameter]) -> float:
        """After backward: the norm, not finite where any of its elements is not; begins a new step."""
        norms = list(self._norms.values())
        self._norms.clear()
        if not norms:
            whole = [p.grad for p in parameters if p.grad is not None and not isinstance(p.grad, DTensor)]
            norms = [torch.linalg.vector_norm(gradient) for gradient in whole]
        return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0

    def _hook_parameters(self, module: nn.Module, _: object) -> None:
        for parameter in module.parameters():
            if parameter.requires_grad and not isinstance(parameter, DTensor) and id(parameter) not in self._hooked:
                self._hooked.add(id(parameter))
                parameter.register_post_accumulate_grad_hook(self._note)

    def _note(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            # with several micro-batches it grows; the last norm is that of the sum
            self._norms[parameter] = torch.linalg.vector_norm(parameter.grad.detach())
