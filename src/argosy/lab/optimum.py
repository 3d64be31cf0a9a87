"""Where a budget of compute is spent best, and what comes out there."""

from dataclasses import dataclass

import numpy as np

from argosy.lab.fit import bootstrap
from argosy.lab.forecast import Forecaster
from argosy.lab.runs import Runs
from argosy.laws.surfaces import Array

STEPS = 241
REACH = 3.0
"""Sizes are searched this far (natural log) beyond the runs' ratio of tokens to parameters."""


@dataclass(frozen=True)
class Optimum:
    """Compute-optimal size with its 80 % interval, which is wide where the bowl is flat; the loss hardly is."""

    compute_flops: float
    parameters: float
    tokens: float
    parameters_80: tuple[float, float]


def grid(runs: Runs, compute_flops: float, steps: int = STEPS) -> Runs:
    """Runs to be forecast along one level of compute, from many tokens per parameter to few.

    C = c·N·D with the data's own c, since logged FLOPs may count more than 6·N·D.
    """
    ratio = np.log(runs.tokens / runs.parameters)
    m = np.linspace(ratio.max() + REACH, ratio.min() - REACH, steps)
    count = np.median(runs.compute_flops / (runs.parameters * runs.tokens))
    pairs = np.log(compute_flops / count)
    n, d = np.exp((pairs - m) / 2), np.exp((pairs + m) / 2)
    return Runs.targets(n, d, np.full(steps, compute_flops), d if runs.repeats_data else None)


def optimum(forecaster: Forecaster, compute_flops: float) -> Optimum:
    """The size of least forecast loss at `compute_flops` on fresh data; interval from a bootstrap of the best form."""
    line = grid(forecaster.runs, compute_flops)
    best = int(np.argmin(forecaster.loss(line)))
    sizes = _resampled_sizes(forecaster, line)
    low, high = np.quantile(sizes, [0.1, 0.9])
    n = float(line.parameters[best])
    # the interval is of one form; the average of the forms must not lie outside it
    return Optimum(compute_flops, n, float(line.tokens[best]), (min(float(low), n), max(float(high), n)))


def _resampled_sizes(forecaster: Forecaster, line: Runs) -> Array:
    best = forecaster.best
    P = bootstrap(best, forecaster.runs, 200)
    loss = best.candidate.surface.evaluate(P, line.points(best.centre))[0]
    return line.parameters[np.argmin(loss, axis=1)]


def at_optimum(forecaster: Forecaster, compute_flops: float) -> Runs:
    """The one run to forecast when only compute is given."""
    found = optimum(forecaster, compute_flops)
    n, d, flops = (np.array([value]) for value in (found.parameters, found.tokens, compute_flops))
    return Runs.targets(n, d, flops, d if forecaster.runs.repeats_data else None)
