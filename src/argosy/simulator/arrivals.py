"""When and where faults strike, drawn so that what-if questions meet the same fate (common random numbers).

Faults are the points of a Poisson process in the plane of time and height that lie below the rate: twice the rate
adds faults and moves none. So two simulations with one seed differ only by what was asked, and a difference between
them has a small error.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

UNIFORMS = 3
NORMALS = 1
_SMALLEST = 1e-3
"""Points that are expected below the lowest band."""


@dataclass(frozen=True)
class Arrivals:
    """Points in time, in order, each with its own dice."""

    time_s: Floats
    uniform: Floats
    """[points, UNIFORMS] in [0, 1)."""
    normal: Floats
    """[points, NORMALS]"""

    def __len__(self) -> int:
        return len(self.time_s)


def draw(seed: int, purpose: int, rate_per_s: float, horizon_s: float) -> Arrivals:
    """The points of one process up to `horizon_s`; those of a smaller rate are among those of a larger one.

    Heights are drawn in bands, each twice as high as the one below, so that no more than twice the points are needed.
    """
    lowest = int(np.floor(np.log2(_SMALLEST / horizon_s)))
    parts = []
    if rate_per_s > 0:
        top = max(lowest, int(np.ceil(np.log2(rate_per_s))))
        for band in range(lowest, top + 1):
            low, high = (0.0, 2.0**lowest) if band == lowest else (2.0 ** (band - 1), 2.0**band)
            parts.append(_band(seed, purpose, band, low, high, rate_per_s, horizon_s))
    time_s = np.concatenate([part[:, 0] for part in parts]) if parts else np.zeros(0)
    rest = np.concatenate([part[:, 1:] for part in parts]) if parts else np.zeros((0, UNIFORMS + NORMALS))
    order = np.argsort(time_s, kind="stable")
    return Arrivals(time_s[order], rest[order, :UNIFORMS], rest[order, UNIFORMS:])


def _band(seed: int, purpose: int, band: int, low: float, high: float, rate: float, horizon_s: float) -> Floats:
    """[points, 1 + UNIFORMS + NORMALS] of the band that are below `rate`."""
    # a seed may not be negative, and bands are
    dice = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, purpose, band + 2048))))
    count = dice.poisson((high - low) * horizon_s)
    points = dice.random((count, 2 + UNIFORMS))
    normal = dice.standard_normal((count, NORMALS))
    height = low + (high - low) * points[:, 1]
    points[:, 0] *= horizon_s
    return np.concatenate((points[:, :1], points[:, 2:], normal), axis=1)[height < rate]
