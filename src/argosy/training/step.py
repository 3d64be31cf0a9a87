"""One optimizer step: forward and backward over micro-batches, then the guarded update."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from argosy.data.batch import Batch
from argosy.optim.clip import global_norm
from argosy.optim.guard import apply_update
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
    loss_sum = torch.zeros((), dtype=torch.float32, device=device)
    for number, batch in enumerate(batches, start=1):
        with phases("h2d_copy", step) if device.type != "cpu" else phases.nothing:
            tokens, targets = batch.tokens.to(device), batch.targets.to(device)
        with phases("forward", step):
            sums = program.model(tokens, targets, z_loss=z_loss)
            objective = sums.objective / global_loss_tokens
        with phases("backward", step):
            program.backward(objective, last=number == len(batches))
        loss_sum += sums.loss_sum.detach()
    phases.local_gradients(step, program.parameters())
    with phases("optimizer", step):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        norm = global_norm(program.parameters())
        # Replicas compute the norm each for itself: a rank whose copy alone went wrong must not skip alone.
        global_loss_sum, broken = total([float(loss_sum), float(not torch.isfinite(norm))])
        if broken:
            norm = torch.full_like(norm, torch.nan)
        update = apply_update(optimizer, program.parameters(), norm, clip_norm)
    phases.update(step, update.applied)
    return StepResult(global_loss_sum, update.norm, update.applied)
