"""What a rank trains or evaluates on in one forward."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NO_LOSS = -100
"""Target of a position that carries no loss; the default of torch's cross-entropy."""

SOURCE, EPOCH, SAMPLE, LOSS, PAD = range(5)
"""Columns of :attr:`Batch.rows`."""


@dataclass(frozen=True)
class Batch:
    """Sequences and what each position should predict.

    Attributes:
        tokens: [b, S] int64.
        targets: [b, S] int64, the next token; ``NO_LOSS`` where there is no loss.
        sample_ids: [b] int64, sample or window; -1 for padding.
        loss_tokens, context_tokens, pad_tokens: positions with loss, positions that only give context,
            positions that hold nothing; they sum to b·S.
        text_bytes: bytes of text that the predicted tokens stand for; None where nobody asked.
        segments: [b, S] int32, which document of its row a position belongs to, rising from 0 (padding counts as one);
            a position may attend to earlier ones of the same number only. None: to all earlier ones.
        positions: [b, S] int32, place inside the document; goes with ``segments``.
        rows: [b, 5] int64: source, epoch, sample, tokens with loss, padding. None for evaluation.
    """

    tokens: Tensor
    targets: Tensor
    sample_ids: Tensor
    loss_tokens: int
    context_tokens: int = 0
    pad_tokens: int = 0
    text_bytes: int | None = None
    segments: Tensor | None = None
    positions: Tensor | None = None
    rows: NDArray[np.int64] | None = None

    @property
    def documents(self) -> tuple[Tensor, Tensor] | None:
        """Segments and positions, or None: each row is one document."""
        if self.segments is None or self.positions is None:
            return None
        return self.segments, self.positions

    def to(self, device: torch.device) -> "Batch":
        """The same on another device; from page-locked memory the copy goes on in the background."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same in page-locked memory, from which a GPU copies while it computes."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        names = ("tokens", "targets", "segments", "positions")
        changed: dict[str, Any] = {name: change(one) for name in names if (one := getattr(self, name)) is not None}
        return replace(self, **changed)
