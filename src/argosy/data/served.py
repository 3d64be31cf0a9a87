"""What a rank really trained on, in numbers that a journal can hold: counts per source, and a sum that proves samples.

The sum adds a hash of (source, epoch, sample) of each row, modulo 2^64. It does not depend on the order of rows, so the
sums of all ranks make that of the global batches, which an auditor works out again from the recipe.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.data.batch import EPOCH, LOSS, PAD, SAMPLE, SOURCE, Batch

EVERY_STEPS = 50

_ODD = [np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]


def sample_sum(source: NDArray[np.int64], epoch: NDArray[np.int64], sample: NDArray[np.int64]) -> int:
    """Sum over samples of a 64-bit hash, modulo 2^64; all [n]."""
    values = np.zeros(len(sample), dtype=np.uint64)
    for part, odd in zip((source, epoch, sample), _ODD, strict=True):
        values = (values ^ part.astype(np.uint64)) * odd  # multiply and fold, once for each part
        values ^= values >> np.uint64(29)
    return int(np.add.reduce(values * _ODD[0] ^ values >> np.uint64(32), dtype=np.uint64))


class Served:
    """Counts since the last records.

    Args:
        names: of the sources.
        share: (data rank, data ranks) of this rank.
    """

    def __init__(self, names: Sequence[str], share: tuple[int, int]):
        self._names = tuple(names)
        self._share = share
        self._clear(None)

    def _clear(self, step: int | None) -> None:
        self._first = self._next = step
        self._sum = 0
        self._counts = np.zeros((len(self._names), 4), dtype=np.int64)

    def add(self, step: int, batches: Sequence[Batch]) -> None:
        """The batches of a step that is done; a step out of line (after a restore) begins anew."""
        if step != self._next:
            self._clear(step)
        self._next = step + 1
        for batch in batches:
            assert batch.rows is not None
            source, epoch, loss = (batch.rows[:, column] for column in (SOURCE, EPOCH, LOSS))
            self._sum = (self._sum + sample_sum(source, epoch, batch.rows[:, SAMPLE])) % (1 << 64)
            length = batch.tokens.shape[1]
            new = np.where(epoch == 0, length, 0)
            columns = (np.full(len(batch.rows), length), loss, batch.rows[:, PAD], new)
            np.add.at(self._counts, source, np.stack(columns, axis=1))

    def records(self) -> Iterator[dict[str, Any]]:
        """Fields of the `data` records of the steps since the last call: one for each source that was served.

        The sum and this rank's share are on the first of them.
        """
        if self._first is None or self._next is None:
            return
        steps = {"s": self._first, "n": self._next - self._first}
        proof: dict[str, Any] = {"sum": f"{self._sum:016x}", "r": list(self._share)}
        for name, (tokens, loss, pad, new) in zip(self._names, self._counts.tolist(), strict=True):
            if tokens:
                yield steps | {
                    "src": name, "tokens": tokens, "loss_tokens": loss, "pad": pad, "first_seen": new, **proof,
                }  # fmt: skip
                proof = {}
        self._clear(self._next)
