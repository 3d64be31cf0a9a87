"""Loss curves under learning rates that were never run, from two or three that were."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]
from scipy.special import stdtrit  # type: ignore[import-untyped]

from argosy.errors import InputError
from argosy.laws.annealing import AnnealingLaw, MultiPower, Schedule, Tissue
from argosy.laws.surfaces import Array

HUBER = 1e-3
"""Relative residual where the square turns linear, as in the laws' papers."""
LAWS: tuple[AnnealingLaw, ...] = (Tissue(), MultiPower())
USUAL_ERROR = 0.0015
"""Relative error on unseen schedules that the laws' authors report (0.11 to 0.2 %): the band's prior, worth"""
USUAL_WEIGHT = 2.0
"""this many withheld curves."""
REFINED = 2
"""Starts that are refined after the grid."""
SEARCHED_POINTS = 60
"""Points of a curve that the search looks at; the coefficients are then solved on all."""


@dataclass(frozen=True)
class Curve:
    """A logged run: where, at which rate, and the loss there (points,)."""

    schedule: Schedule
    loss: Array


@dataclass(frozen=True)
class ScheduleFit:
    """A fitted law: non-linear parameters and the three coefficients."""

    law: AnnealingLaw
    shape: Array
    coefficients: Array

    def losses(self, schedule: Schedule) -> Array:
        """Loss at each point of a schedule."""
        return np.asarray(self.law.basis(self.shape, schedule) @ self.coefficients)


@dataclass(frozen=True)
class ScheduleForecaster:
    """Laws averaged by how well each forecast a withheld curve, and the error that was made there.

    `relative_sd` is of one logged point on a schedule not seen, no longer than `longest_area`, the area under the
    rate of the largest curve; it grows with the e-folds beyond.
    """

    fits: list[ScheduleFit]
    weights: Array
    relative_sd: float
    withheld_error: dict[str, float]
    longest_area: float

    def losses(self, schedule: Schedule) -> Array:
        """Forecast loss at each point."""
        return np.asarray(self.weights @ np.array([fitted.losses(schedule) for fitted in self.fits]))

    def interval(self, schedule: Schedule, level: float) -> tuple[Array, Array]:
        """Band for the loss at each point."""
        loss = self.losses(schedule)
        beyond = 1 + np.maximum(np.log(schedule.area / self.longest_area), 0.0)
        freedom = USUAL_WEIGHT + len(self.withheld_error)
        reach = float(stdtrit(freedom, 0.5 + level / 2)) * self.relative_sd * beyond * loss
        return loss - reach, loss + reach


def fit_schedules(curves: Mapping[str, Curve]) -> ScheduleForecaster:
    """Fit all laws; weights and band come from withholding each curve in turn, so at least two are needed."""
    if len(curves) < 2:
        raise InputError(
            "one curve cannot show what decay does", do="give at least two schedules, e.g. constant and cosine"
        )
    for name, curve in curves.items():
        if len(curve.loss) < 10:
            raise InputError(f"curve {name} has {len(curve.loss)} points; 10 are needed", do="log more points")
    errors = np.empty((len(LAWS), len(curves)))
    forecasts = []
    for j, (withheld, curve) in enumerate(curves.items()):
        rest = [other for name, other in curves.items() if name != withheld]
        # without a drop of the rate among the rest, nothing there says what decay pays: such a fold teaches nothing
        informed = any(np.ptp(other.schedule.rates) > 0.05 * other.schedule.rates.max() for other in rest)
        made = np.array([fit_law(law, rest).losses(curve.schedule) for law in LAWS]) / curve.loss - 1
        errors[:, j] = np.sqrt((made**2).mean(1)) if informed else np.nan
        forecasts.append(made)
    score = np.nanmean(errors, axis=1)
    weights = score**-2 / (score**-2).sum()
    spread = {
        name: float(np.sqrt(((weights @ made) ** 2).mean()))
        for name, made, known in zip(curves, forecasts, np.isfinite(errors[0]), strict=True)
        if known
    }
    fits = [fit_law(law, list(curves.values())) for law in LAWS]
    total = USUAL_WEIGHT * USUAL_ERROR**2 + sum(error**2 for error in spread.values())
    sd = float(np.sqrt(total / (USUAL_WEIGHT + len(spread))))
    longest = max(float(curve.schedule.area[-1]) for curve in curves.values())
    return ScheduleForecaster(fits, weights, sd, spread, longest)


def fit_law(law: AnnealingLaw, curves: Sequence[Curve]) -> ScheduleFit:
    """Variable projection: the three coefficients are solved inside a search over the other parameters."""
    thinned = [slice(None, None, max(1, len(curve.loss) // SEARCHED_POINTS)) for curve in curves]
    everything = [slice(None)] * len(curves)

    def project(shape: Array, rows: Sequence[slice] = thinned) -> tuple[Array, Array]:
        loss = np.concatenate([curve.loss[row] for curve, row in zip(curves, rows, strict=True)])
        parts = [law.basis(shape, curve.schedule, row) for curve, row in zip(curves, rows, strict=True)]
        return _solve(np.concatenate(parts) / loss[:, None])

    def cost(shape: Array) -> float:
        size = np.abs(project(shape)[1]) / HUBER
        return float(np.where(size < 1, 0.5 * size**2, size - 0.5).sum())

    grid = law.grid()
    order = np.argsort([cost(shape) for shape in grid])
    found = []
    for start in grid[order[:REFINED]]:
        low, high = grid.min(0) - 2.5, grid.max(0) + 2.5
        solved = least_squares(
            lambda shape: project(shape)[1], start, bounds=(low, high), loss="huber", f_scale=HUBER, max_nfev=40
        )
        found.append((float(solved.cost), tuple(solved.x)))
    shape = np.array(min(found)[1])
    return ScheduleFit(law, shape, project(shape, everything)[0])


def _solve(basis: Array) -> tuple[Array, Array]:
    """Coefficients that bring `basis` (points, 3) nearest to 1 under Huber's loss, and the residuals."""
    size = np.linalg.norm(basis, axis=0)
    size[size == 0] = 1.0  # no drop of the rate: nothing to be paid
    scaled = basis / size
    trust = np.ones(len(basis))
    for _ in range(3):
        weighted = scaled * trust[:, None]
        coefficients = np.linalg.solve(weighted.T @ scaled + 1e-12 * np.eye(3), weighted.sum(0))
        residual = scaled @ coefficients - 1
        trust = np.minimum(1.0, HUBER / np.maximum(np.abs(residual), 1e-12))
    return coefficients / size, residual
