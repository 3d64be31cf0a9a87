"""From a stream of documents to samples of S positions: cut the stream, or fit whole documents into bins.

Both say where in a row each document begins, so that attention can be kept inside documents and positions restart.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from argosy.data.batch import NO_LOSS
from argosy.data.bins import Bins
from argosy.data.shards import TokenShards

Ints = NDArray[np.int64]


class Packing(Protocol):
    """Samples of one source."""

    @property
    def samples(self) -> int: ...

    @property
    def shards(self) -> TokenShards: ...

    def fill(self, sample: int, inputs: Ints, targets: Ints) -> tuple[Sequence[int], int, int]:
        """Write a sample into two rows [S]; (where documents begin, ascending, tokens with loss, padding)."""
        ...


class Split:
    """Concatenate and split: sample ``i`` is tokens ``i·S … i·S + S`` of the stream: S inputs and, one on, S targets.

    Every token of the stream but the first is a target in exactly one sample; what is left at the end and fills no
    sample is not used.

    Args:
        masks: documents of a row do not see each other: no loss for guessing how the next document begins.
    """

    def __init__(self, shards: TokenShards, sequence_length: int, *, masks: bool = False):
        self.shards = shards
        self.sequence_length = sequence_length
        self.masks = masks
        self.samples = (shards.tokens - 1) // sequence_length

    def fill(self, sample: int, inputs: Ints, targets: Ints) -> tuple[Sequence[int], int, int]:
        length = self.sequence_length
        start = sample * length
        window = self.shards.window(start, start + length + 1)
        inputs[:] = window[:-1]
        targets[:] = window[1:]
        if self.shards.masked:
            targets[~self.shards.read_loss(start + 1, start + length + 1)] = NO_LOSS
        begins: Sequence[int] = ()
        if self.masks:
            ends = self.shards.ends_between(start, start + length + 1) - start
            targets[ends - 1] = NO_LOSS
            begins = ends[ends < length].tolist()
            if not self.shards.masked:
                return begins, length - ends.size, 0
        return begins, int((targets != NO_LOSS).sum()) if self.shards.masked else length, 0


class BestFit:
    """Whole documents, and pieces of S of longer ones, fitted into bins of S positions; the rest of a bin is padding.

    A document of n tokens has n - 1 positions: each of its tokens but the first is a target in exactly one sample.
    """

    def __init__(self, shards: TokenShards, sequence_length: int, bins: Bins):
        self.shards = shards
        self.sequence_length = sequence_length
        self._bins = bins
        self.samples = len(bins)

    def fill(self, sample: int, inputs: Ints, targets: Ints) -> tuple[Sequence[int], int, int]:
        begins, at, masked = [], 0, self.shards.masked
        for start, size in self._bins.pieces(sample):
            begins.append(at)
            window = self.shards.window(start, start + size + 1)
            inputs[at : at + size] = window[:-1]
            targets[at : at + size] = window[1:]
            if masked:
                targets[at : at + size][~self.shards.read_loss(start + 1, start + size + 1)] = NO_LOSS
            at += size
        pad = self.sequence_length - at
        if pad:
            begins.append(at)
            inputs[at:] = self.shards.end_of_text
            targets[at:] = NO_LOSS
        return begins, int((targets != NO_LOSS).sum()) if masked else at, pad


def document_masks(
    begins: Sequence[Sequence[int]], sequence_length: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(segments, positions), each [rows, S], from where documents begin in each row.

    A row's first document has number 0, whether it begins there or before.
    """
    rows = np.arange(len(begins)) * sequence_length
    counts = [len(one) for one in begins]
    columns = np.fromiter((at for one in begins for at in one), dtype=np.int64, count=sum(counts))
    starts = np.unique(np.concatenate([rows, np.repeat(rows, counts) + columns]))  # in all rows, end to end
    size = len(begins) * sequence_length
    lengths = np.diff(starts, append=size)
    first = np.searchsorted(starts, rows)
    numbers = np.arange(len(starts)) - np.repeat(first, np.diff(first, append=len(starts)))
    segments = np.repeat(numbers.astype(np.int32), lengths)
    positions = np.arange(size, dtype=np.int32) - np.repeat(starts.astype(np.int32), lengths)
    return segments.reshape(-1, sequence_length), positions.reshape(-1, sequence_length)
