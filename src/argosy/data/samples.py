"""Which sample comes when: a function of the seed and the global index, and of nothing else."""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from argosy.data.permutation import Permutation

BLOCK = 1 << 12
"""Indices permuted in one call: numpy's cost per call is then spread over many samples."""


class SampleOrder:
    """Order in which a run visits ``samples`` samples, epoch after epoch.

    The global index counts samples over the whole run: step ``t`` of a run with batches of ``B``
    sequences reads indices ``t·B … (t+1)·B - 1``. Every epoch visits each sample exactly once, in an
    order of its own, so the position is one integer and world size never enters.
    """

    def __init__(self, seed: int, samples: int):
        if samples < 1:
            raise ValueError("an order needs at least one sample")
        self.seed = seed
        self.samples = samples
        self._permutation = lru_cache(maxsize=4)(self._permutation_of)
        self._block = lru_cache(maxsize=2)(self._block_of)

    def __call__(self, index: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(epoch, sample id) at global indices ≥ 0 of any shape."""
        epochs, positions = np.divmod(np.asarray(index, dtype=np.int64), self.samples)
        ids = np.empty_like(positions)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            ids[chosen] = self._permutation(int(epoch))(positions[chosen])
        return epochs, ids

    def ids(self, first: int, count: int) -> NDArray[np.int64]:
        """Sample ids at the global indices ``first … first + count - 1``."""
        blocks = range(first // BLOCK, (first + count - 1) // BLOCK + 1)
        joined = self._block(blocks[0]) if len(blocks) == 1 else np.concatenate([self._block(b) for b in blocks])
        start = first - blocks[0] * BLOCK
        return joined[start : start + count]

    def _block_of(self, block: int) -> NDArray[np.int64]:
        return self(np.arange(block * BLOCK, (block + 1) * BLOCK))[1]

    def _permutation_of(self, epoch: int) -> Permutation:
        return Permutation(self.samples, f"argosy samples seed={self.seed} epoch={epoch}".encode())
