"""Training batches as a pure function of the global index: nothing to replay, nothing to warm up."""

from collections.abc import Sequence

import numpy as np
import torch

from argosy.data.batch import EPOCH, LOSS, PAD, SAMPLE, SOURCE, Batch
from argosy.data.packing import Packing, document_masks
from argosy.data.position import Ranges
from argosy.data.samples import Drawn, SampleOrder


class Loader:
    """Any rank's share of any global batch.

    A batch is some stretch of global indices of :class:`SampleOrder`, and the ranks' shares are consecutive slices of
    it: their concatenation in rank order is the same batch for any number of ranks and any micro-batch.

    Args:
        packings: the samples of each source.
        order: which of them comes when.
        sequence_length: S, in tokens.
        masks: give ``segments`` and ``positions``, so that documents of a row do not see each other.
    """

    def __init__(self, packings: Sequence[Packing], order: SampleOrder, sequence_length: int, *, masks: bool = False):
        self.packings = tuple(packings)
        self.order = order
        self.sequence_length = sequence_length
        self.masks = masks

    def batch(self, window: Ranges, data_rank: int = 0, data_ranks: int = 1, micro: slice = slice(None)) -> Batch:
        """A rank's share of the global batch that stands at the indices of ``window``.

        Args:
            window: stretches of global indices, as :meth:`Position.take` gives them.
            micro: sequences of the share, e.g. ``slice(0, 4)`` for the first micro-batch of four.

        Raises:
            IndexError: the sources have reached their limits before.
            InputError: tokens on the disk are not what was written.
        """
        size = sum(count for _, count in window)
        assert size % data_ranks == 0, "the layout checks that ranks divide the batch"
        share = size // data_ranks
        start, stop, _ = micro.indices(share)
        return self._read(self._draw(window, data_rank * share + start, max(0, stop - start)))

    def _draw(self, window: Ranges, skip: int, count: int) -> Drawn:
        """``count`` samples of the window, after the first ``skip``."""
        parts = []
        for first, length in window:
            taken = min(max(0, length - skip), count)
            if taken:
                parts.append(self.order.draw(first + skip, taken))
            skip, count = max(0, skip - length), count - taken
        if len(parts) == 1:
            return parts[0]
        empty = [np.empty(0, dtype=np.int64)]
        return Drawn(
            *(np.concatenate([*empty, *(getattr(part, name) for part in parts)]) for name in Drawn.__annotations__)
        )

    def _read(self, drawn: Drawn) -> Batch:
        shape = (len(drawn), self.sequence_length)
        tokens, targets = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        rows = np.empty((len(drawn), 5), dtype=np.int64)
        rows[:, SOURCE], rows[:, EPOCH], rows[:, SAMPLE] = drawn.source, drawn.epoch, drawn.sample
        begins = []
        for row, (source, sample) in enumerate(zip(drawn.source.tolist(), drawn.sample.tolist(), strict=True)):
            starts, rows[row, LOSS], rows[row, PAD] = self.packings[source].fill(sample, tokens[row], targets[row])
            begins.append(starts)
        segments = positions = None
        if self.masks:
            segments, positions = (torch.from_numpy(part) for part in document_masks(begins, self.sequence_length))
        loss_tokens, pad_tokens = int(rows[:, LOSS].sum()), int(rows[:, PAD].sum())
        return Batch(
            tokens=torch.from_numpy(tokens),
            targets=torch.from_numpy(targets),
            sample_ids=torch.from_numpy(drawn.sample.copy()),
            loss_tokens=loss_tokens,
            context_tokens=tokens.size - loss_tokens - pad_tokens,
            pad_tokens=pad_tokens,
            segments=segments,
            positions=positions,
            rows=rows,
        )
