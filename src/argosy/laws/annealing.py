"""Loss along any learning-rate schedule, from sampled rates: two published laws, vectorised for fitting.

Both are L0 + A·(area under the rate)^-alpha minus what each drop of the rate has paid since:

============ ======================================================================= ===============================
Tissue       C · Σ_k (rate_{k-1} - rate_k) · (1 - exp(-(t-k)/length)) · length        Tissue et al. 2024, 2408.11029
MultiPower   B · Σ_k (rate_{k-1} - rate_k) · (1 - (1 + c·rate_k^-gamma·S_k(t))^-beta)  Luo et al. 2025, 2503.12811
============ ======================================================================= ===============================

with S_k(t) the area under the rate from drop k to t, and length = 1/(1 - λ) in Tissue's momentum λ. Both are linear
in L0, A and the last factor, so that a fit only searches the others. :mod:`argosy.laws.schedule` has Tissue's law per
step and in plain numbers; here the rate is known where the loss was logged, and linear in between.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from argosy.laws.surfaces import Array

ALL = slice(None)


@dataclass(frozen=True)
class Schedule:
    """Steps and learning rates (points,), ascending; what lies before the first point is a linear warm-up to it."""

    steps: Array
    rates: Array

    @cached_property
    def area(self) -> Array:
        """Area under the rate up to each point, warm-up included."""
        warmup = 0.5 * self.rates[0] * self.steps[0]
        pieces = 0.5 * (self.rates[1:] + self.rates[:-1]) * np.diff(self.steps)
        return np.concatenate([[warmup], warmup + np.cumsum(pieces)])

    @cached_property
    def drops(self) -> tuple[NDArray[np.intp], Array]:
        """Points where the rate has changed since the point before, and by how much it fell (negative: rose)."""
        at = np.flatnonzero(np.diff(self.rates)) + 1
        return at, self.rates[at - 1] - self.rates[at]


class AnnealingLaw(Protocol):
    """A law that is linear in three coefficients."""

    name: str

    def grid(self) -> Array:
        """Starting points for the non-linear parameters (starts, parameters)."""

    def basis(self, shape: Array, schedule: Schedule, rows: slice = ALL) -> Array:
        """(points, 3): 1, area^-alpha, and minus what drops have paid, for the non-linear parameters `shape`.

        `rows` chooses the points to answer for; the whole schedule counts in any case.
        """


class Tissue:
    """Non-linear parameters: ln alpha, ln length in steps."""

    name = "tissue"

    def grid(self) -> Array:
        return np.array(list(product(np.log([0.2, 0.4, 0.7, 1.2]), np.log([100.0, 400.0, 1600.0, 6400.0]))))

    def basis(self, shape: Array, schedule: Schedule, rows: slice = ALL) -> Array:
        alpha, length = np.exp(shape)
        at, drops = schedule.drops
        since = np.maximum(schedule.steps[rows, None] - schedule.steps[None, at], 0.0)
        paid = -np.expm1(-since / length) * length @ drops
        area = schedule.area[rows]
        return np.stack([np.ones_like(area), area**-alpha, -paid], 1)


class MultiPower:
    """Non-linear parameters: ln alpha, ln c, ln beta, gamma; the rate is taken relative to its first value."""

    name = "multi_power"

    def grid(self) -> Array:
        return np.array(list(product(np.log([0.3, 0.6]), np.log([1.0, 10.0, 100.0]), np.log([0.3, 0.8]), [0.2, 0.7])))

    def basis(self, shape: Array, schedule: Schedule, rows: slice = ALL) -> Array:
        alpha, c, beta = np.exp(shape[:3])
        at, drops = schedule.drops
        area = schedule.area[rows]
        since = np.maximum(area[:, None] - schedule.area[None, at], 0.0)
        rates = np.maximum(schedule.rates[at] / schedule.rates[0], 1e-3)
        paid = (1 - (1 + c * rates ** -shape[3] * since) ** -beta) @ drops
        return np.stack([np.ones_like(area), area**-alpha, -paid], 1)
