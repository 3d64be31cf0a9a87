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

from argosy.models.collectives import all_gather
from argosy.models.cpu import product
from argosy.models.embedding import VocabularyShard

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


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, z_loss: float = 0.0, shard: VocabularyShard | None = None
) -> LossSums:
    """Cross-entropy of ``hidden @ weight.T`` against `targets`.

    hidden: [T, D]; weight: [V, D] of the same dtype; targets: int64 [T], -100 where no loss is wanted.
    At most a fixed number of logits exists at a time. Softmax statistics are at least fp32.

    With `shard`, `weight` has this rank's rows of the vocabulary, and hidden and targets are equal on all its ranks.
    Each gets the same sums, and a gradient of hidden that has to be summed over the ranks.
    """
    needs_grad = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    loss_sum, z_sum, objective = _LinearCrossEntropy.apply(hidden, weight, targets, z_loss, needs_grad, shard)
    return LossSums(objective, loss_sum, z_sum)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        z_loss: float,
        needs_grad: bool,
        shard: VocabularyShard | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        counted = targets != IGNORED
        targets = targets.where(counted, 0)
        losses = torch.empty(len(hidden), dtype=wide, device=hidden.device)
        log_partitions = torch.empty_like(losses)
        hidden_grad = torch.empty_like(hidden) if needs_grad else None
        weight_grad = torch.zeros_like(weight, dtype=wide) if needs_grad else None
        mine, targets = _own_targets(targets, len(weight), shard)

        rows = chunk_rows(len(weight) if shard is None else shard.most, weight.device.type)
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            target = targets[part, None]
            logits = product(hidden[part], weight).to(wide)  # [rows, V]
            p, log_partition, target_logit = _statistics(logits, target, mine[part, None], shard)
            loss = log_partition - target_logit
            losses[part], log_partitions[part] = loss[:, 0], log_partition[:, 0]
            if hidden_grad is None or weight_grad is None:
                continue
            if z_loss:
                p *= 1 + 2 * z_loss * log_partition
            grad = p.scatter_add_(1, target, -mine[part, None].to(p.dtype)).to(weight.dtype)
            # Tokens without loss are dropped here, where they are D wide, not where they are V wide.
            keep = counted[part, None].to(hidden.dtype)
            hidden_grad[part] = product(grad, weight.T).mul_(keep)
            weight_grad += product(grad.T, (hidden[part] * keep).T)
            del logits, p, grad  # before the next chunk's are made

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
        return scaled_hidden, (weight_grad * scale).to(ctx.weight_dtype), None, None, None, None


def _own_targets(targets: Tensor, rows: int, shard: VocabularyShard | None) -> tuple[Tensor, Tensor]:
    """Which targets lie in this rank's `rows` of the vocabulary, and the row of each (0 for the others)."""
    if shard is None:
        return torch.ones_like(targets, dtype=torch.bool), targets
    row = targets - shard.first
    mine = (row >= 0) & (row < rows)
    return mine, row.where(mine, 0)


def _statistics(
    logits: Tensor, target: Tensor, mine: Tensor, shard: VocabularyShard | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities [rows, V], log-partition and logit of the target [rows, 1] each, of the whole vocabulary."""
    if shard is None:
        p = torch.softmax(logits, dim=-1)
        # The largest logit loses nothing where the target's own p may underflow.
        return p, logits.amax(-1, keepdim=True) - p.amax(-1, keepdim=True).log_(), logits.gather(1, target)
    largest = logits.amax(-1, keepdim=True)
    p = (logits - largest).exp_()
    own = torch.stack((largest, p.sum(-1, keepdim=True), logits.gather(1, target) * mine))  # [3, rows, 1]
    tops, sums, targets = all_gather(own, shard.group).unbind(1)
    log_partition = torch.logsumexp(tops + sums.log(), dim=0)
    return p.mul_((largest - log_partition).exp_()), log_partition, targets.sum(0)


def chunk_rows(vocabulary_rows: int, device_type: str) -> int:
    """Tokens of a chunk, when a rank holds at most `vocabulary_rows` of the output layer."""
    elements = _CPU_ELEMENTS if device_type == "cpu" else _GPU_ELEMENTS
    return max(_LEAST_ROWS, elements // vocabulary_rows)
