"""Cross-entropy of a linear head, without ever holding the logits of the whole batch.

Tokens are taken in chunks. While a chunk's logits are at hand, the gradients of hidden states and weight
follow from them analytically, so the backward pass only multiplies two small tensors by a scalar and
the logits are computed once. Writing p = softmax(logits) and L = log sum exp(logits), a token's objective is
(L - logits[target]) + z_loss · L², whose gradient by the logits is p · (1 + 2 · z_loss · L) - onehot(target).
The z-loss keeps L near zero (PaLM, Chowdhery et al. 2022, section 5).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from argosy.models.cpu import product

IGNORED = -100

_CPU_ELEMENTS = 1 << 19
"""Logits held at once on a CPU: they stay in its last-level cache from the first product to the last."""
_GPU_ELEMENTS = 1 << 27
"""Logits held at once on a GPU: 512 MiB in fp32, so that few and large products are launched."""
_LEAST_ROWS = 128
"""Tokens of a chunk at least, however large the vocabulary: fewer make slow products."""


class LossSums(NamedTuple):
    """Sums over the tokens whose target is not -100; scalars of at least fp32."""

    objective: Tensor
    """What is minimised, loss_sum + z_sum: the only one that has a gradient."""
    loss_sum: Tensor
    """Cross-entropy in nats."""
    z_sum: Tensor
    """z_loss times the squared log-partition."""


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, z_loss: float = 0.0) -> LossSums:
    """Cross-entropy of ``hidden @ weight.T`` against `targets`.

    hidden: [T, D]; weight: [V, D] of the same dtype; targets: int64 [T], -100 where no loss is wanted.
    At most a fixed number of logits exists at a time. Softmax statistics are at least fp32.
    """
    needs_grad = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    loss_sum, z_sum, objective = _LinearCrossEntropy.apply(hidden, weight, targets, z_loss, needs_grad)
    return LossSums(objective, loss_sum, z_sum)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, z_loss: float, needs_grad: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        counted = targets != IGNORED
        targets = targets.where(counted, 0)
        losses = torch.empty(len(hidden), dtype=wide, device=hidden.device)
        log_partitions = torch.empty_like(losses)
        hidden_grad = torch.empty_like(hidden) if needs_grad else None
        weight_grad = torch.zeros_like(weight, dtype=wide) if needs_grad else None
        minus_one = losses.new_full((1, 1), -1.0)

        rows = _chunk_rows(weight)
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            target = targets[part, None]
            logits = product(hidden[part], weight).to(wide)  # [rows, V]
            p = torch.softmax(logits, dim=-1)
            # The largest logit loses nothing where the target's own p may underflow.
            log_partition = logits.amax(-1, keepdim=True) - p.amax(-1, keepdim=True).log_()
            loss = log_partition - logits.gather(1, target)
            losses[part], log_partitions[part] = loss[:, 0], log_partition[:, 0]
            if hidden_grad is None or weight_grad is None:
                continue
            if z_loss:
                p *= 1 + 2 * z_loss * log_partition
            grad = p.scatter_add_(1, target, minus_one.expand_as(target)).to(weight.dtype)
            # Tokens without loss are dropped here, where they are D wide, not where they are V wide.
            keep = counted[part, None].to(hidden.dtype)
            hidden_grad[part] = product(grad, weight.T).mul_(keep)
            weight_grad += product(grad.T, (hidden[part] * keep).T)

        loss_sum = losses.where(counted, 0).sum()
        z_sum = z_loss * log_partitions.square().where(counted, 0).sum()
        if needs_grad:
            ctx.save_for_backward(hidden_grad, weight_grad)
            ctx.weight_dtype = weight.dtype
        ctx.mark_non_differentiable(loss_sum, z_sum)
        return loss_sum, z_sum, loss_sum + z_sum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden_grad, weight_grad = ctx.saved_tensors
        scale = grads[-1]
        # In bf16 a factor such as 1 / tokens would be off by up to 0.4 %, for all gradients alike.
        scaled_hidden = (hidden_grad.to(scale.dtype) * scale).to(hidden_grad.dtype)
        return scaled_hidden, (weight_grad * scale).to(ctx.weight_dtype), None, None, None


def _chunk_rows(weight: Tensor) -> int:
    elements = _CPU_ELEMENTS if weight.device.type == "cpu" else _GPU_ELEMENTS
    return max(_LEAST_ROWS, elements // len(weight))
