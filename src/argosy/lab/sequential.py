"""Looking at the results after every seed without paying for it in false alarms.

A confidence sequence holds at all sample sizes at once, so one may stop at any look. This one is the normal mixture
(Robbins 1970; Howard et al. 2021, arXiv 1810.08240) on the gain of matched pairs or alternating seeds, with the
noise's variance estimated as it goes along and charged for by Student's law (:func:`e_value`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from argosy.errors import InputError

MIXTURE = 1.0
"""sd of the effects the test is tuned for, in units of the noise of one difference."""


def e_value(differences: Sequence[float]) -> float:
    """Evidence against "no gain": expected at most 1 under it at any stopping time, whatever the noise.

    Bayes factor of a t-test with effect size ~ N(0, `MIXTURE`²) and the invariant prior on the noise: as a ratio of
    marginals of the scale-free data it is a test martingale (Lai 1976; Pérez-Ortiz et al. 2022). Needs two values.
    """
    d = np.asarray(differences, float)
    if not np.isfinite(d).all():
        raise InputError("a difference is missing or infinite", do="leave diverged pairs out and say so")
    n = len(d)
    if n < 2:
        return 1.0
    # marginal of scale-free data under effect prior N(0, g): exponent -n/2 on the residual sum of squares
    g = MIXTURE**2
    total = float((d**2).sum())
    if total == 0:
        return 1.0
    explained = float(d.sum()) ** 2 / (n * total)
    kept = 1 - explained * n * g / (1 + n * g)
    return float(math.exp(min(-0.5 * math.log1p(n * g) - n / 2 * math.log(max(kept, 1e-300)), 700.0)))


@dataclass(frozen=True)
class Looks:
    """Evidence after each look, and the first look at which the test may stop (None: never)."""

    evidence: list[float]
    stopped_at: int | None


def watch(differences: Sequence[float], alpha: float = 0.05) -> Looks:
    """Look after every pair; stop when the evidence reaches 1/alpha. False alarms at most `alpha` for ever (Ville)."""
    evidence = [e_value(differences[: n + 1]) for n in range(len(differences))]
    return Looks(evidence, next((n + 1 for n, e in enumerate(evidence) if e >= 1 / alpha), None))
