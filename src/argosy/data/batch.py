"""What a rank trains or evaluates on in one forward."""

from dataclasses import dataclass, replace

import numpy as np
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

    def pinned(self) -> "Batch":
        """The same in page-locked memory, from which a GPU copies while it computes."""
        return replace(
            self,
            tokens=self.tokens.pin_memory(),
            targets=self.targets.pin_memory(),
            segments=None if self.segments is None else self.segments.pin_memory(),
            positions=None if self.positions is None else self.positions.pin_memory(),
        )
