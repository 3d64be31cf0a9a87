"""The gradient noise scale: at how many tokens a batch stops paying for itself.

McCandlish et al. 2018, "An empirical model of large-batch training", appendix A.1: the squared norm of a gradient over
B tokens is |G|² + tr(Σ)/B in expectation, so norms at two batch sizes give both terms. The small batch is one
replica's, the big one all of them. Both terms are averaged over the sampled steps before they are divided; single
steps say next to nothing.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from argosy.journal.reader import JournalFile

LEAST = 4
"""Sampled steps."""


@dataclass(frozen=True)
class NoiseScale:
    """Of one attempt."""

    attempt: int
    tokens: float
    """tr(Σ) ÷ |G|²: a batch of so many tokens gets half of the progress per token of a tiny one."""
    low: float
    high: float
    """From leaving out each quarter of the steps."""
    batch_tokens: float
    steps: int


def noise_scale(files: Sequence[JournalFile]) -> NoiseScale | None:
    """From the `norms` records of an attempt's ranks; None where they are missing, too few, or noise alone."""
    local: dict[int, list[float]] = defaultdict(list)
    for file in files:
        for row in file.of_kind("norms"):
            if isinstance(row.get("sq"), float | int) and type(row.get("s")) is int:
                local[row["s"]].append(float(row["sq"]))
    if not files or not local:
        return None
    steps, replicas = files[0].steps, len(files)
    big = {int(step): float(norm) ** 2 for step, norm in zip(steps.step, steps.grad_norm, strict=True)}
    tokens = {int(step): int(row[0]) for step, row in zip(steps.step, steps.tokens, strict=True)}
    terms = []
    for step, squares in local.items():
        batch = tokens.get(step, 0)
        if len(squares) != replicas or replicas < 2 or not batch or not np.isfinite(big.get(step, np.nan)):
            continue
        # each replica's gradient is its part of the sum: replicas times that is its own mean
        small = replicas**2 * float(np.mean(squares))
        own = batch / replicas
        signal = (batch * big[step] - own * small) / (batch - own)
        spread = (small - big[step]) / (1 / own - 1 / batch)
        terms.append((spread, signal, batch))
    if len(terms) < LEAST:
        return None
    table = np.array(terms)
    scale = _ratio(table)
    if scale is None:
        return None
    parts = [_ratio(np.delete(table, quarter, axis=0)) for quarter in np.array_split(np.arange(len(table)), 4)]
    known = [part for part in parts if part is not None] or [scale]
    return NoiseScale(files[0].attempt, scale, min(known), max(known), float(table[:, 2].mean()), len(table))


def _ratio(table: np.ndarray) -> float | None:
    spread, signal = float(table[:, 0].mean()), float(table[:, 1].mean())
    return spread / signal if spread > 0 and signal > 0 else None
