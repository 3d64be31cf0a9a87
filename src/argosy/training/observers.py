"""Hooks of the training loop (INTERFACES 7).

Doors pass observers in: fault injection, detectors, other people's loops. The loop knows only this class.
An observer runs on the step path of its rank, so it must be quick; what it raises ends the attempt.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from torch import nn

from argosy.checkpoint.state import Tree
from argosy.data.batch import Batch
from argosy.layout.layout import Layout


@dataclass(frozen=True)
class Ready:
    """What is built when training is about to begin."""

    rank: int
    world: int
    group: dist.ProcessGroup | None
    """Control group of all ranks; None for a single one."""
    layout: Layout
    models: Sequence[nn.Module]
    """Of this rank: one, or several stages of a pipeline."""
    tree: Tree
    """The very tensors of weights and optimizer."""
    step: int
    """Updates done before."""


class Observer:
    """Does nothing; override what is of interest."""

    def on_ready(self, ready: Ready) -> None:
        """All is built and loaded, and no step of this attempt is done."""

    def on_phase(self, name: str, step: int) -> None:
        """A declared phase begins: ``data_wait, forward, backward, optimizer, eval, ckpt_block``."""

    def on_batch(self, step: int, batches: Sequence[Batch]) -> None:
        """The micro-batches of this rank are there, before the forward pass."""

    def on_local_grads(self, step: int, parameters: Iterable[nn.Parameter]) -> None:
        """Backward is done. Gradients are this rank's own, except that FSDP2 has summed its shards on the way: it frees
        each block's whole gradients at once, so there is no moment at which all of them exist."""

    def on_update(self, step: int, applied: bool) -> None:
        """The optimizer has stepped, or skipped a non-finite update."""

    def on_step_end(self, step: int, loss: float) -> None:
        """A step is over; `loss` is the global mean in nats per token."""

    def on_save(self, step: int, folder: Path) -> None:
        """The checkpoint of `step` is committed in `folder`."""
