"""How much of a gain is left at a scale not yet tried: a law for the difference on matched cells.

The difference of two separately fitted laws inherits the misfit of both and is useless for gaps of a percent. Runs of
both arms at the same N and D share that misfit, so the gap itself is fitted:

    gap(N, D) = G · (N/N_max)^-a · (D/D_max)^-b

G is solved in closed form on a grid of exponents and noise; the forecast averages over the grid by its posterior.
The prior says that gains shrink or stay, a and b about 0.25 ± 0.25: nanochat's x0 gain falls with N^0.34 at a fixed
ratio, and a gain that grows with scale is what a lucky small run looks like.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit  # type: ignore[import-untyped]

from argosy.errors import InputError
from argosy.lab.runs import Runs
from argosy.laws.surfaces import Array

EXPONENT = (0.25, 0.25)
LARGEST_EXPONENT = 1.2
NOISE = (2e-4, 2e-2)
"""Range of the noise of one gap, nats: from rounding to instability."""
LEAST_CELLS = 3
SHRINK_PER_E_FOLD = 0.15
"""Relative misfit of the law per e-fold beyond the largest cell."""
PRIOR_FREEDOM = 4.0


@dataclass(frozen=True)
class Gaps:
    """Matched cells (cells,): baseline minus variant, nats, so that a gain is positive."""

    parameters: Array
    tokens: Array
    gap: Array

    def take(self, which: Array) -> "Gaps":
        """Cells of a mask."""
        return Gaps(self.parameters[which], self.tokens[which], self.gap[which])


@dataclass(frozen=True)
class GapForecast:
    """Gap at one target, nats; `probability_gain` that it is positive."""

    gap: float
    sd: float
    degrees_of_freedom: float

    def interval(self, level: float) -> tuple[float, float]:
        """Two-sided interval of the gap that one pair of runs would show."""
        reach = float(stdtrit(self.degrees_of_freedom, 0.5 + level / 2)) * self.sd
        return self.gap - reach, self.gap + reach

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"gap": self.gap, "interval_50": list(self.interval(0.5)), "interval_90": list(self.interval(0.9))}


def match(baseline: Runs, variant: Runs) -> Gaps:
    """Cells that both arms have; several runs of a cell are averaged as seeds (sweeps: choose the best before)."""

    def cells(runs: Runs) -> dict[tuple[float, float], float]:
        found: dict[tuple[float, float], list[float]] = {}
        for n, d, loss in zip(runs.parameters, runs.tokens, runs.loss, strict=True):
            found.setdefault((float(n), float(d)), []).append(float(loss))
        return {cell: float(np.mean(losses)) for cell, losses in found.items()}

    one, other = cells(baseline), cells(variant)
    both = sorted(set(one) & set(other))
    if len(both) < LEAST_CELLS:
        raise InputError(
            f"{len(both)} cells (equal N and D) hold both arms; {LEAST_CELLS} are needed",
            do="run both arms at the same sizes and tokens",
        )
    n, d = np.array(both).T
    return Gaps(n, d, np.array([one[cell] - other[cell] for cell in both]))


def forecast_gap(gaps: Gaps, parameters: Array, tokens: Array) -> list[GapForecast]:
    """Gap at each target (targets,), its sd scaled by how forecasts for the larger cells from the smaller fared."""
    squares = []
    for size in np.unique(gaps.parameters)[1:]:
        known = gaps.parameters < size
        if known.sum() >= LEAST_CELLS:
            rest = gaps.take(np.logical_not(known))
            mean, sd = _posterior(gaps.take(known), rest.parameters, rest.tokens)
            squares.append(float((((mean - rest.gap) / sd) ** 2).mean()))
    freedom = PRIOR_FREEDOM + len(squares)
    inflation = np.sqrt((PRIOR_FREEDOM + np.sum(squares)) / freedom)
    mean, sd = _posterior(gaps, parameters, tokens)
    return [GapForecast(float(m), float(inflation * s), freedom) for m, s in zip(mean, sd, strict=True)]


def _posterior(gaps: Gaps, parameters: Array, tokens: Array) -> tuple[Array, Array]:
    """Mean and sd (targets,) of one measured gap, over the grid of exponents and noise."""
    largest = np.log(gaps.parameters.max()), np.log(gaps.tokens.max())
    n, d = np.log(gaps.parameters) - largest[0], np.log(gaps.tokens) - largest[1]
    at_n, at_d = np.log(parameters) - largest[0], np.log(tokens) - largest[1]
    steps = np.linspace(0, LARGEST_EXPONENT, 41)
    a, b = (axis.ravel()[:, None] for axis in np.meshgrid(steps, steps))
    shape, at = np.exp(-a * n - b * d), np.exp(-a * at_n - b * at_d)
    prior = -0.5 * (((a - EXPONENT[0]) / EXPONENT[1]) ** 2 + ((b - EXPONENT[0]) / EXPONENT[1]) ** 2)[:, 0]
    noise = np.geomspace(*NOISE, 24)[:, None]
    # flat prior on G: the width that it takes from the evidence is what the determinant term holds
    power = (shape**2).sum(1)
    G = (shape * gaps.gap).sum(1) / power
    misfit = ((gaps.gap - G[:, None] * shape) ** 2).sum(1)
    evidence = -0.5 * misfit / noise**2 - (len(n) - 1) * np.log(noise) - 0.5 * np.log(power) + prior
    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    over = weight.sum(0)
    mean = over @ (G[:, None] * at)
    of_law = over @ (G[:, None] * at - mean) ** 2 + (weight * noise**2).sum(0) @ (at**2 / power[:, None])
    beyond = np.maximum(np.maximum(at_n, at_d), 0.0)
    of_run = float((weight * noise**2).sum())
    return mean, np.sqrt(of_law + of_run + (SHRINK_PER_E_FOLD * beyond * mean) ** 2)


def split_arms(arms: Sequence[str], baseline: str, variant: str) -> tuple[Array, Array]:
    """Masks of the rows of each arm."""
    names = np.array(arms)
    return names == baseline, names == variant
