"""Calibration: a few measured steps correct the constants of one cluster.

The correction is a posterior, not a ratio: a single row tells only part of what makes a cluster differ, so its
residual is shrunk by what is known about the spread between sources and within one.
"""

from dataclasses import dataclass

import numpy as np

from argosy.planner.constants import Constants
from argosy.planner.step_time import StepTime, step_time
from argosy.planner.workload import Array, Workload

BETWEEN = 0.1
"""Spread (of log predicted ÷ measured) between sources that were not fitted; leave-one-source-out."""
WITHIN = 0.13
"""Spread between the rows of one source around its own median."""

TERM_CLASS = {
    "compute": "gemm",
    "tp_comm": "link",
    "ep_comm": "nic",
    "cp_comm": "link",
    "pp_comm": "nic",
    "dp_comm": "nic",
    "host": "host",
}
"""Class of kernel or link that each term depends on most."""


@dataclass(frozen=True)
class Calibration:
    """Measured ÷ predicted rate by class, as the ``measured`` table of a cluster file."""

    factors: dict[str, float]
    rows: int
    error_before: float
    """Median absolute error of the rows, uncalibrated."""
    error_after: float


def anchor_factor(log_residuals: Array, between: float = BETWEEN, within: float = WITHIN) -> float:
    """What to multiply predictions by, given log(predicted ÷ measured) of some anchor rows.

    Posterior mean of a common offset with prior width `between`, seen through rows of width `within`.
    """
    n = len(log_residuals)
    weight = n * between**2 / (n * between**2 + within**2)
    return float(np.exp(-weight * np.median(log_residuals)))


def calibrate(w: Workload, constants: Constants, measured_s: Array) -> Calibration:
    """One factor per class from measured steps: least squares of log step time, pulled towards 1.

    With a single row the factors share its residual in proportion to the time that each class takes.
    """
    before = step_time(w, constants.values(w))
    residual = np.log(before.total / measured_s)
    classes = sorted(set(TERM_CLASS.values()))
    # d log(total) / d log(rate of a class) is minus the share of time that the class takes
    share = np.stack([_share(before, name) for name in classes], axis=1)
    prior = np.diag(np.full(len(classes), (WITHIN / BETWEEN) ** 2))
    # Small shares must not swing far for a small gain, hence the prior on every class alike
    rate = np.linalg.solve(share.T @ share + prior, share.T @ residual)
    factors = {name: float(np.exp(value)) for name, value in zip(classes, rate, strict=True)}
    after = residual - share @ rate
    return Calibration(
        factors,
        len(residual),
        float(np.median(np.abs(np.expm1(residual)))),
        float(np.median(np.abs(np.expm1(after)))),
    )


def _share(time: StepTime, name: str) -> Array:
    return (
        sum((getattr(time, term) for term, c in TERM_CLASS.items() if c == name), np.zeros(len(time.total)))
        / time.total
    )
