"""Rolling origins: pretend that the largest runs have not happened yet."""

import numpy as np

from argosy.lab.runs import Runs
from argosy.laws.surfaces import Mask

LEAST_RUNS = 8
LEAST_SPAN = np.log(7.0)
"""Compute must span this (natural log) below an origin, else a floor and an exponent cannot be told apart."""
LEVEL = 0.2
MOST_PER_AXIS = 6


def origins(runs: Runs, axes: tuple[str, ...] = ("compute_flops",)) -> list[Mask]:
    """Masks of the runs known at each origin, the latest first; runs outside a mask are to be forecast.

    `axes` are the columns along which the past is cut: a forecast for a larger model than any yet must be tested on
    withheld model sizes, not only on withheld compute.
    """
    found: dict[bytes, Mask] = {}
    for axis in axes:
        logs = np.log(getattr(runs, axis))
        cuts = []
        for level in np.unique(np.round(logs / LEVEL))[:-1] * LEVEL:
            known = logs <= level + LEVEL / 2 + 0.01
            if not known.all() and _enough(runs, known) and known.tobytes() not in found:
                cuts.append(known)
        cuts.reverse()
        if len(cuts) > MOST_PER_AXIS:
            cuts = [cuts[i] for i in np.unique(np.linspace(0, len(cuts) - 1, MOST_PER_AXIS).round().astype(int))]
        found |= {known.tobytes(): known for known in cuts}
    return list(found.values())


def axes_of(runs: Runs, targets: Runs) -> tuple[str, ...]:
    """Compute, and each other axis on which a target exceeds every run."""
    if runs.axis:
        return ("compute_flops",)
    beyond = [
        axis for axis in ("parameters", "tokens") if getattr(targets, axis).max() > 1.1 * getattr(runs, axis).max()
    ]
    return ("compute_flops", *(axis for axis in beyond if not is_isoflop(runs)))


def is_isoflop(runs: Runs) -> bool:
    """Whether the runs are sweeps of model size at few levels of compute.

    There, withholding the larger sizes tests the far side of each bowl, which no forecast on the front needs.
    """
    levels = runs.levels()
    return len(levels) >= 3 and float(np.median([len(np.unique(runs.parameters[level])) for level in levels])) >= 4


def _enough(runs: Runs, known: Mask) -> bool:
    least = 5 if runs.axis else LEAST_RUNS
    if known.sum() < least or np.ptp(np.log(runs.compute_flops[known])) < LEAST_SPAN:
        return False
    sizes = len(np.unique(runs.parameters[known]))
    return sizes >= least if runs.axis else sizes >= 3 and len(np.unique(runs.tokens[known])) >= 3
