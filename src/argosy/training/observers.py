"""Hooks of the training loop (INTERFACES 7).

Doors pass observers in: fault injection, detectors, other people's loops. The loop knows only this class.
An observer runs on the step path of its rank, so it must be quick; what it raises ends the attempt.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import nn

from argosy.data.batch import Batch


class Observer:
    """Does nothing; override what is of interest."""

    def on_phase(self, name: str, step: int) -> None:
        """A declared phase begins: ``data_wait, forward, backward, optimizer, eval, ckpt_block``."""

    def on_batch(self, step: int, batches: Sequence[Batch]) -> None:
        """The micro-batches of this rank are there, before the forward pass."""

    def on_local_grads(self, step: int, parameters: Iterable[nn.Parameter]) -> None:
        """Backward is done; gradients are summed over ranks, not yet clipped."""

    def on_update(self, step: int, applied: bool) -> None:
        """The optimizer has stepped, or skipped a non-finite update."""

    def on_step_end(self, step: int, loss: float) -> None:
        """A step is over; `loss` is the global mean in nats per token."""

    def on_save(self, step: int, folder: Path) -> None:
        """The checkpoint of `step` is committed in `folder`."""
