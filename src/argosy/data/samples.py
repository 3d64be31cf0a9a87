"""Which sample comes when: a function of the seed and the global index, and of nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from argosy.data.mixture import Mixture, Stage
from argosy.data.permutation import Permutation, permute

BLOCK = 1 << 8
"""Indices worked out in one call: numpy's cost per call is then spread over many samples, and a seek stays short."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Drawn:
    """What stands at consecutive global indices; each [count] int64.

    Attributes:
        source: number of the source.
        epoch: passes over that source before.
        sample: id within the source.
    """

    source: Ints
    epoch: Ints
    sample: Ints

    def __len__(self) -> int:
        return len(self.sample)

    def __getitem__(self, part: slice) -> "Drawn":
        return Drawn(self.source[part], self.epoch[part], self.sample[part])


class SampleOrder:
    """Order in which a run visits the samples of its sources, epoch after epoch.

    The global index counts samples over the whole run. Every epoch of a source visits each of its samples exactly once,
    in an order of its own, so the position is one integer, and world size, batch size and workers never enter.

    Args:
        seed: the recipe's ``run.seed``.
        samples: of each source, ≥ 1.
        names: of the sources, which key their orders: a source keeps its order when others join.
        mixture: which source comes when; None for a single source.
    """

    def __init__(self, seed: int, samples: Sequence[int], names: Sequence[str] = ("",), mixture: Mixture | None = None):
        if min(samples, default=0) < 1:
            raise ValueError("an order needs at least one sample of each source")
        self.seed = seed
        self.samples = tuple(samples)
        self.names = tuple(names)
        self.mixture = mixture or Mixture([Stage(0, (1.0,) * len(samples))], [None] * len(samples))
        self._lengths = np.array(self.samples, dtype=np.int64)
        self._permutation = lru_cache(maxsize=4 * len(self.samples))(self._permutation_of)
        self._block = lru_cache(maxsize=4)(self._block_of)

    @property
    def end(self) -> int:
        """Global index at which all sources have reached their limits."""
        return self.mixture.end

    def draw(self, first: int, count: int) -> Drawn:
        """What stands at the global indices ``first … first + count - 1``.

        Raises:
            IndexError: beyond ``end``.
        """
        if first + count > self.end:
            raise IndexError(f"the sources hold {self.end} samples, {first + count} are asked for")
        blocks = [self._block(block) for block in range(first // BLOCK, (first + max(1, count) - 1) // BLOCK + 1)]
        start = first % BLOCK
        if len(blocks) == 1:
            return blocks[0][start : start + count]
        source, epoch, sample = (
            np.concatenate([getattr(block, name) for block in blocks])[start : start + count]
            for name in ("source", "epoch", "sample")
        )
        return Drawn(source, epoch, sample)

    def _block_of(self, block: int) -> Drawn:
        first = block * BLOCK
        source, number = self.mixture.sources_at(first, min(BLOCK, self.end - first))
        epoch, position = np.divmod(number, self._lengths[source])
        passes, which = np.unique(source + len(self.samples) * epoch, return_inverse=True)
        orders = [self._permutation(*divmod(one, len(self.samples))) for one in passes.tolist()]
        return Drawn(source, epoch, permute(orders, which, position))

    def _permutation_of(self, epoch: int, source: int) -> Permutation:
        name = self.names[source]
        of_source = f" source={name}" if name else ""
        key = f"argosy samples seed={self.seed} epoch={epoch}{of_source}"
        return Permutation(self.samples[source], key.encode())
