"""Fit the constants to measured rows: robust least squares of log step time around physical starting points.

Each source has the same weight whatever its number of rows, so that a sweep of a thousand does not outvote a
table of eight. ``python -m argosy.planner.fit CASES.csv`` rewrites ``constants.toml``.
"""

import sys
from importlib import resources
from pathlib import Path

import numpy as np

from argosy.planner.cases import Cases, read_cases
from argosy.planner.constants import GEMM_WIDTH, PRIORS, Constants, gemm_prior, to_toml
from argosy.planner.memory import settle_recompute
from argosy.planner.step_time import model_flops, step_time
from argosy.planner.validate import MIN_MFU, MIN_ROWS
from argosy.planner.workload import DIES, DTYPES, Array, Workload

HUBER = 0.08
"""Residuals above this count linearly: measured rows contain slow nodes and typing errors."""
PRIOR_WEIGHT = 1e-3
"""Weight of the starting points against one source."""


class Training:
    """Rows ready for fitting: the workload, the measured times and each row's source."""

    def __init__(self, cases: Cases):
        measured = cases.step_time_s[cases.predictable]
        workload = cases.workload()
        source = np.array(cases.text("source"))[cases.predictable]
        disputed = np.array(["disagree" in note for note in cases.text("notes")])[cases.predictable]
        mfu = model_flops(workload) / workload.gpus / measured / workload.peak_flops_per_s
        with np.errstate(invalid="ignore"):
            good = np.isfinite(measured) & (mfu >= MIN_MFU) & ~disputed
        counts = {s: int((good & (source == s)).sum()) for s in set(source)}
        good &= np.array([counts[s] >= MIN_ROWS for s in source])
        self.rows = np.array(cases.predictable)[good]
        """Index of each row among all rows of the file."""
        self.workload = settle_recompute(workload.take(good))
        self.measured_s: Array = measured[good]
        self.source = source[good]

    def weights(self) -> Array:
        """Per row, so that each source sums to 1."""
        counts = {s: (self.source == s).sum() for s in set(self.source)}
        return np.array([1.0 / counts[s] for s in self.source])

    def take(self, index: Array) -> "Training":
        part = object.__new__(Training)
        part.rows, part.workload = self.rows[index], self.workload.take(index)
        part.measured_s, part.source = self.measured_s[index], self.source[index]
        return part


def fit(data: Training, iterations: int = 10) -> Constants:
    """Constants that minimise the weighted Huber loss of log(predicted / measured) plus the priors' pull.

    Levenberg–Marquardt with numerical derivatives in the logarithm of each constant.
    """
    names = list(PRIORS)
    pairs = sorted({(int(d), int(t)) for d, t in zip(data.workload.die, data.workload.dtype, strict=True) if d >= 0})
    first = [np.flatnonzero((data.workload.die == d) & (data.workload.dtype == t))[0] for d, t in pairs]
    start = np.log([*(PRIORS[n].value for n in names), *gemm_prior(data.workload.take(np.array(first)))])
    width = np.array([*(PRIORS[n].width for n in names), *[GEMM_WIDTH] * len(pairs)])
    weight = data.weights()

    def constants(x: Array) -> Constants:
        e = [float(v) for v in np.exp(x)]
        gemm = {(DIES[d], DTYPES[t]): v for (d, t), v in zip(pairs, e[len(names) :], strict=True)}
        return Constants(dict(zip(names, e, strict=False)), gemm, 0.0, "")

    def residual(x: Array) -> Array:
        return log_ratio(data.workload, constants(x), data.measured_s)

    def loss(x: Array) -> float:
        r = np.abs(residual(x))
        huber = np.where(r < HUBER, r * r / 2.0, HUBER * (r - HUBER / 2.0))
        return float((weight * huber).sum() + 0.5 * PRIOR_WEIGHT * (((x - start) / width) ** 2).sum())

    x, damping = start.copy(), 1e-2
    best = loss(x)
    for _ in range(iterations):
        r = residual(x)
        jacobian = np.stack([(residual(x + 1e-3 * e) - r) / 1e-3 for e in np.eye(len(x))], axis=1)
        w = weight * np.minimum(1.0, HUBER / np.maximum(np.abs(r), 1e-9))
        hessian = (jacobian * w[:, None]).T @ jacobian + PRIOR_WEIGHT * np.diag(width**-2.0)
        gradient = (jacobian * w[:, None]).T @ r + PRIOR_WEIGHT * (x - start) / width**2
        for _ in range(6):
            move = -np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
            tried = x + np.clip(move, -0.7, 0.7)
            value = loss(tried)
            if value < best:
                break
            damping *= 5.0
        else:
            break
        gain, x, best, damping = best - value, tried, value, max(damping / 4.0, 1e-6)
        if gain < 1e-4 * best:
            break
    return constants(x)


def log_ratio(w: Workload, constants: Constants, measured_s: Array) -> Array:
    """log(predicted ÷ measured step time)."""
    return np.log(step_time(w, constants.values(w)).total / measured_s)


def main(argv: list[str]) -> None:
    """Fit all rows of ``argv[1]`` and rewrite ``constants.toml``."""
    path = Path(argv[1])
    data = Training(read_cases(path))
    found = fit(data)
    residual = log_ratio(data.workload, found, data.measured_s)
    by_source = [np.median(np.abs(residual[data.source == s])) for s in dict.fromkeys(data.source)]
    # A new source is off by more than a fitted one; leave-one-source-out says by about half as much again
    spread = 1.4826 * 1.5 * float(np.mean(by_source))
    origin = f"{len(data.rows)} rows of {len(by_source)} public sources"
    text = to_toml(Constants(found.shared, found.gemm, spread, origin))
    Path(str(resources.files("argosy.planner").joinpath("constants.toml"))).write_text(text, "utf-8")
    print(f"{len(found)} constants from {origin}; mean over sources of the median error {np.mean(by_source):.1%}")


if __name__ == "__main__":
    main(sys.argv)
