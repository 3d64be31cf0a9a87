"""The cheapest run that would narrow a forecast most."""

from dataclasses import dataclass

import numpy as np

from argosy.lab.forecast import MISFIT, Forecaster
from argosy.lab.runs import Runs, distance
from argosy.laws.surfaces import Array

SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Compute of proposals, in units of the largest run so far."""
LARGEST_SHARE = 0.5
"""A proposal costs at most this share of the target; else one would rather run the target."""


@dataclass(frozen=True)
class NextRun:
    """A proposed run and the forecast's sd (relative to now) that is expected after it."""

    parameters: float
    tokens: float
    compute_flops: float
    sd_after: float

    def to_json(self) -> dict[str, float]:
        """For ``--json``."""
        return {"N": self.parameters, "D": self.tokens, "C": self.compute_flops, "interval_shrinks_to": self.sd_after}


def next_run(forecaster: Forecaster, target: Runs) -> NextRun | None:
    """Best drop of variance per FLOP; None when no proposal below `LARGEST_SHARE` of the target helps by 2 %.

    A run at z lowers the parameters' variance at x by (J_x V J_z)² / (sd_z² + J_z V J_z), and the misfit by bringing
    the target nearer. Ratios of tokens to parameters are those of the target and of the data.
    """
    proposals = _proposals(forecaster.runs, target)
    if proposals is None:
        return None
    now, after = _variances(forecaster, target, proposals)
    gain = 1 - after / now
    best = int(np.argmax(gain / proposals.compute_flops**0.5))
    if gain[best] < 0.02:
        return None
    return NextRun(
        float(proposals.parameters[best]),
        float(proposals.tokens[best]),
        float(proposals.compute_flops[best]),
        float(np.sqrt(after[best] / now)),
    )


def _proposals(runs: Runs, target: Runs) -> Runs | None:
    largest = runs.compute_flops.max()
    levels = [largest * scale for scale in SCALES if largest * scale <= LARGEST_SHARE * float(target.compute_flops[0])]
    if not levels:
        return None
    C = np.repeat(levels, 1 if runs.axis else 3)
    if runs.axis:
        return Runs.on_axis(runs.axis, C)
    ratio = np.log(runs.tokens / runs.parameters)
    m = np.tile([np.log(target.tokens[0] / target.parameters[0]), *np.quantile(ratio, [0.25, 0.75])], len(levels))
    pairs = np.log(C / np.median(runs.compute_flops / (runs.parameters * runs.tokens)))
    n, d = np.exp((pairs - m) / 2), np.exp((pairs + m) / 2)
    return Runs.targets(n, d, C, d if runs.repeats_data else None)


def _variances(forecaster: Forecaster, target: Runs, proposals: Runs) -> tuple[float, Array]:
    """Variance at the target now, and after each proposal."""
    now, after = 0.0, np.zeros(len(proposals))
    beyond = float(distance(forecaster.runs, target)[0])
    nearer = np.array(
        [min(beyond, float(distance(proposals.take(np.array([i])), target)[0])) for i in range(len(proposals))]
    )
    for weight, fitted in zip(forecaster.weights, forecaster.fits, strict=True):
        surface = fitted.candidate.surface
        loss, J = (part[0, 0] for part in surface.evaluate(fitted.p[None], target.points(fitted.centre)))
        _, J_new = (part[0] for part in surface.evaluate(fitted.p[None], proposals.points(fitted.centre)))
        _, by_parameters, of_run = fitted.moments(proposals)
        here = float(J @ fitted.covariance @ J)
        drop = (J_new @ fitted.covariance @ J) ** 2 / (of_run + by_parameters)
        misfit = (MISFIT * float(loss) * fitted.scale) ** 2
        own = (float(loss) * fitted.scale) ** 2
        now += weight * (here + own + misfit * beyond**2)
        after += weight * (here - drop + own + misfit * nearer**2)
    return now, after
