"""One optimizer step: forward and backward over micro-batches, then the guarded update."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from argosy.data.batch import Batch
from argosy.optim.guard import Update, apply_update
from argosy.parallel.program import Program
from argosy.training.phases import Phases


@dataclass(frozen=True)
class StepResult:
    loss_sum: float
    """Nats over the loss tokens of all ranks."""
    grad_norm: float
    """Of the global gradient, before clipping; the same on all ranks."""
    applied: bool
    """False when the gradient was not finite and nothing was changed."""


def train_step(
    program: Program,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    *,
    step: int,
    global_loss_tokens: int,
    learning_rate: float,
    clip_norm: float,
    z_loss: float,
    device: torch.device,
    phases: Phases,
    total: Callable[[list[float]], list[float]] = list,
) -> StepResult:
    """Take one step on this rank's `batches`.

    Each micro-batch's loss sum is divided by `global_loss_tokens`, the count over all ranks and micro-batches, so
    the summed gradient is that of the mean over the whole global batch, however its tokens are spread.
    `total` sums over all ranks; the default is for a single one. With a gradient that is not finite on any rank, no
    rank changes anything.
    """
    with phases("optimizer", step):
        program.clear_gradients()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
    if device.type != "cpu":
        with phases("h2d_copy", step):
            batches = [batch.to(device) for batch in batches]
    loss_sum = program.forward_backward(
        batches, divisor=global_loss_tokens, z_loss=z_loss, timed=lambda name: phases(name, step)
    )
    phases.local_gradients(step, program.parameters())
    with phases("backward", step):
        program.sum_gradients()
    with phases("optimizer", step):
        norm = program.gradient_norm()
        # Replicas compute the norm each for itself: a rank whose copy alone went wrong must not skip alone.
        global_loss_sum, broken = total([float(loss_sum), float(not torch.isfinite(norm))])
        if broken:
            norm = torch.full_like(norm, torch.nan)
        if program.updates_in_backward:
            update = Update(applied=True, norm=float(norm))
        else:
            update = apply_update(optimizer, program.parameters(), norm, clip_norm)
        program.after_change()
    phases.update(step, update.applied)
    return StepResult(global_loss_sum, update.norm, update.applied)
