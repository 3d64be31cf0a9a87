"""Forecasts of the loss with an interval that was earned in back-tests.

1. Every candidate form is fitted to what was known at each rolling origin and forecasts the rest.
2. Forms are averaged with weights by their robust log score there (:func:`_weights`).
3. The variance of the average is that of the parameters, of the disagreement between forms, of one run, and of misfit
   that grows with the distance beyond the largest run. Its size is then multiplied by what the standardised errors at
   the origins say, shrunk towards 1 (:func:`_calibrate`): few origins, wide tails; many quiet origins, a narrow band.
4. Beyond the tested distance the band widens in proportion; beyond `REFUSE_BEYOND` times it there is no forecast.

The constants were set by rolling origins inside the training rows of `bench/lab_backtests.py`, one set for all data;
`docs/lab.md` tells how. A change of any of them is a change of method and needs a new registration there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit  # type: ignore[import-untyped]

from argosy.lab.fit import Candidate, Fit, fit
from argosy.lab.origins import axes_of, origins
from argosy.lab.runs import Runs, distance
from argosy.laws.surfaces import Array, Chinchilla, Curve, Front

SHARPNESS = 8.0
"""Nats of mean log score are multiplied by this in the weights of the forms."""
MISFIT = 0.006
"""Misfit per e-fold beyond the largest run, as a share of the reducible loss: exponents drift, sizes are not tuned
equally well. 0.2 to 3.6 % in rolling origins of ten ladders."""
RELEVANCE = 0.05
"""Runs whose excess over the front (log of reducible loss) differs from the targets' by this count 0.6 as much."""
PRIOR_ORIGINS = 4.0
"""Weight of "standardised errors are 1" against the origins seen."""
EFFECTIVE_SHARE = 0.5
"""Origins overlap, so that each counts as this much of an independent one."""
UNTESTED_VARIANCE = 2.0
"""Variance factor when no origin is possible."""
REFUSE_BEYOND = 3.0
"""Times the tested distance; `FREE_DISTANCE` e-folds are allowed in any case."""
FREE_DISTANCE = 1.0
FRONT_SPREAD = 4000.0
"""q of the tight candidate: runs with more than 2 % of excess hardly count."""


def candidates(runs: Runs) -> list[Candidate]:
    """Forms that may describe the runs. Discounts differ since nobody knows how much small runs mislead."""
    if runs.axis:
        curve = Curve(of_compute=runs.axis == "C")
        return [Candidate(curve, discount) for discount in (0.0, 0.25, 0.5)]
    repeated = runs.repeats_data
    front, still = Front(repetition=repeated), Front(drift=False, repetition=repeated)
    chinchilla, tied = Chinchilla(repetition=repeated), Chinchilla(tied=True, repetition=repeated)
    return [
        Candidate(front, 0.3),
        Candidate(front, 0.8),
        Candidate(front, 0.2, FRONT_SPREAD),
        Candidate(front, 0.6, FRONT_SPREAD),
        Candidate(still, 0.5),
        Candidate(still, 0.5, FRONT_SPREAD),
        Candidate(chinchilla, 0.2),
        Candidate(tied, 0.2),
    ]


@dataclass(frozen=True)
class Moments:
    """What all candidates say about some targets: (candidates, targets) each, and the targets' distance."""

    loss: Array
    by_parameters: Array
    of_run: Array
    misfit: Array
    distance: Array

    @classmethod
    def of(cls, fits: Sequence[Fit], runs: Runs, targets: Runs) -> "Moments":
        beyond = distance(runs, targets)
        loss, by_parameters, of_run = (np.array(part) for part in zip(*(f.moments(targets) for f in fits), strict=True))
        floor = np.exp([[f.p[0]] for f in fits])
        return cls(loss, by_parameters, of_run, (MISFIT * (loss - floor) * beyond) ** 2, beyond)

    def mean(self, weights: Array) -> Array:
        """Average loss (targets,)."""
        return weights @ self.loss

    def variance(self, weights: Array) -> Array:
        """Variance (targets,) of one more run at the targets, before calibration."""
        apart = weights @ (self.loss - self.mean(weights)) ** 2
        return weights @ (self.by_parameters + self.of_run + self.misfit) + apart


@dataclass(frozen=True)
class Origin:
    """One back-test: what was known, and what was forecast of the rest. `error` is relative, (withheld runs,)."""

    known: int
    largest_flops: float
    error: Array
    standard_error: Array
    distance: Array
    relevance: Array
    """Weights by likeness to the targets; they sum to 1."""


@dataclass(frozen=True)
class Forecast:
    """Forecast at one target. `status` is ok, widened (beyond the tested distance), untested or refused."""

    loss: float
    sd: float
    degrees_of_freedom: float
    distance: float
    status: str

    def interval(self, level: float) -> tuple[float, float]:
        """Two-sided interval for the loss of one run, e.g. `level` 0.9; an infinite one if refused."""
        if self.status == "refused":
            return -np.inf, np.inf
        reach = float(stdtrit(self.degrees_of_freedom, 0.5 + level / 2)) * self.sd
        return self.loss - reach, self.loss + reach


@dataclass(frozen=True)
class Forecaster:
    """All candidates fitted to all runs, and what back-tests say about them."""

    runs: Runs
    fits: list[Fit]
    weights: Array
    inflation: float
    """Standard errors before calibration are multiplied by this."""
    degrees_of_freedom: float
    tested_distance: float
    origins: list[Origin] = field(repr=False)

    @property
    def best(self) -> Fit:
        """The fit with the largest weight."""
        return self.fits[int(np.argmax(self.weights))]

    def loss(self, targets: Runs) -> Array:
        """Average loss at targets."""
        return Moments.of(self.fits, self.runs, targets).mean(self.weights)

    def forecast(self, targets: Runs) -> list[Forecast]:
        """Forecasts of one run at each target."""
        said = Moments.of(self.fits, self.runs, targets)
        mean, variance = said.mean(self.weights), said.variance(self.weights)
        if self.origins:
            beyond = np.maximum(1.0, said.distance / max(self.tested_distance, FREE_DISTANCE))
        else:
            beyond = 1 + said.distance
        sd = self.inflation * np.sqrt(variance) * beyond
        return [
            Forecast(float(m), float(s), self.degrees_of_freedom, float(h), self._status(float(h)))
            for m, s, h in zip(mean, sd, said.distance, strict=True)
        ]

    def _status(self, beyond: float) -> str:
        tested = max(self.tested_distance, FREE_DISTANCE)
        if beyond > REFUSE_BEYOND * tested:
            return "refused"
        if not self.origins:
            return "untested"
        return "widened" if beyond > tested else "ok"


def forecaster(runs: Runs, targets: Runs | None = None) -> Forecaster:
    """Fit, back-test and calibrate. `targets` only say along which axes the past must be cut."""
    forms = candidates(runs)
    tests = []
    for known in origins(runs, axes_of(runs, runs if targets is None else targets)):
        past, rest = runs.take(known), runs.take(np.logical_not(known))
        tests.append((past, rest, Moments.of([fit(form, past) for form in forms], past, rest)))
    fits = [fit(form, runs) for form in forms]
    like = [_relevance(fits, rest, targets) for _, rest, _ in tests]
    weights = _weights(
        [(rest.loss, said, alike) for (_, rest, said), alike in zip(tests, like, strict=True)], len(forms)
    )
    results = []
    for (past, rest, said), alike in zip(tests, like, strict=True):
        sd = np.sqrt(said.variance(weights))
        error = said.mean(weights) - rest.loss
        results.append(
            Origin(len(past), float(past.compute_flops.max()), error / rest.loss, error / sd, said.distance, alike)
        )
    inflation, freedom = _calibrate(results)
    tested = max((float(origin.distance.max()) for origin in results), default=0.0)
    return Forecaster(runs, fits, weights, inflation, freedom, tested, results)


def _relevance(fits: Sequence[Fit], withheld: Runs, targets: Runs | None) -> Array:
    """Weights (withheld runs,) by likeness to the targets: on the front, or equally far off it.

    A form that is right on the front and wrong on the far wings is the one to ask about the front.
    Without targets the front is meant. Forms disagree about excess, so their median is taken.
    """

    def excess(runs: Runs) -> Array:
        return np.median([f.candidate.surface.excess(f.p, runs.points(f.centre)) for f in fits], axis=0)

    centre = 0.0 if targets is None else float(np.median(excess(targets)))
    weight = np.exp(-0.5 * ((excess(withheld) - centre) / RELEVANCE) ** 2) + 1e-6
    return np.asarray(weight / weight.sum())


def _weights(tests: Sequence[tuple[Array, Moments, Array]], forms: int) -> Array:
    """Weights of the forms by mean log score under heavy tails (Cauchy), equal per origin; equal without origins."""
    if not tests:
        return np.full(forms, 1 / forms)
    scores = []
    for truth, said, alike in tests:
        unit = np.sqrt(np.median(said.of_run, axis=0) + (1e-3 * truth) ** 2)
        scores.append(0.5 * np.log1p(((said.loss - truth) / unit) ** 2) @ alike)
    worse = np.mean(scores, axis=0)
    weights = np.exp(-SHARPNESS * (worse - worse.min()))
    return weights / weights.sum()


def _calibrate(results: Sequence[Origin]) -> tuple[float, float]:
    """Factor for the sd and degrees of freedom: scaled inverse chi-square with prior scale 1."""
    if not results:
        return float(np.sqrt(UNTESTED_VARIANCE)), PRIOR_ORIGINS
    # one origin with one broken run must not set the band of all: squares are bounded
    squares = [float(np.minimum(origin.standard_error**2, 50.0) @ origin.relevance) for origin in results]
    seen = EFFECTIVE_SHARE * len(squares)
    freedom = PRIOR_ORIGINS + seen
    return float(np.sqrt((PRIOR_ORIGINS + seen * np.mean(squares)) / freedom)), freedom
