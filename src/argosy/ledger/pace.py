"""Whether steps stayed as fast as they were: p50 and p99 over time, and where their level changed, and whose doing.

Change points of the step time are found by binary segmentation: the split that most lowers the sum of absolute
deviations from the medians on both sides is taken while it lowers it by more than noise explains.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.journal.reader import JournalFile

Floats = NDArray[np.float64]

LEAST = 12
"""Visits on each side of a change."""
GAIN = 0.10
"""Least change of the median, as a share of it..."""
SURE = 4.0
"""...and in units of its standard error."""
MOST_CHANGES = 8
CURVE = 60


@dataclass(frozen=True)
class Stretch:
    """Visits between two changes."""

    first_step: int
    last_step: int
    p50_s: float
    p99_s: float


@dataclass(frozen=True)
class Change:
    """The level of the step time changed."""

    step: int
    before_s: float
    after_s: float
    phase: str
    """What took longer, or less long, on the rank that it changed most on; not a wait for others."""
    rank: int


@dataclass(frozen=True)
class PaceOf:
    """One attempt."""

    attempt: int
    p50_s: float
    p99_s: float
    curve: list[Stretch]
    """Equal parts of the attempt, at most :data:`CURVE`."""
    changes: list[Change]


def pace(files: Sequence[JournalFile], own_windows: Sequence[NDArray[np.int64]]) -> PaceOf | None:
    """The pace of one attempt from its ranks' files and their step windows without spans; None without steps."""
    if not files or not len(own_windows[0]):
        return None
    steps, own = files[0].steps, own_windows[0] / 1e9
    parts = np.array_split(np.arange(len(own)), min(CURVE, len(own)))
    curve = [Stretch(int(steps.step[part[0]]), int(steps.step[part[-1]]), *_quantiles(own[part])) for part in parts]
    p50_s, p99_s = _quantiles(own)
    return PaceOf(files[0].attempt, p50_s, p99_s, curve, [_named(files, at, own) for at in _changes(own, 0)])


def _quantiles(own: Floats) -> tuple[float, float]:
    p50, p99 = np.percentile(own, (50, 99))
    return float(p50), float(p99)


def _changes(own: Floats, offset: int, depth: int = 0) -> list[int]:
    """Rows before which the level changes, in order."""
    if len(own) < 2 * LEAST or depth >= 3:
        return []
    at = _best_split(own)
    before, after = own[:at], own[at:]
    shift = abs(float(np.median(after) - np.median(before)))
    noise = max(_error(before), _error(after))
    if shift < GAIN * float(np.median(before)) or shift < SURE * noise:
        return []
    found = [*_changes(before, offset, depth + 1), offset + at, *_changes(after, offset + at, depth + 1)]
    return found[:MOST_CHANGES]


def _best_split(own: Floats) -> int:
    """The row at which ranks of values on both sides differ most (Mann, Whitney and Pettitt's statistic)."""
    order = np.argsort(np.argsort(own, kind="stable"), kind="stable") + 1.0
    count = np.arange(1, len(own) + 1)
    statistic = np.abs(2 * np.cumsum(order) - count * (len(own) + 1))
    return int(np.argmax(statistic[LEAST - 1 : len(own) - LEAST])) + LEAST


def _error(values: Floats) -> float:
    """Standard error of a median from the median absolute deviation."""
    deviation = float(np.median(np.abs(values - np.median(values))))
    return 1.2533 * 1.4826 * deviation / len(values) ** 0.5


def _named(files: Sequence[JournalFile], at: int, own: Floats) -> Change:
    """What changed, and on which rank: the phase without communication whose median moved most."""
    before, after = slice(max(0, at - 50), at), slice(at, at + 50)
    up = float(np.median(own[after])) >= float(np.median(own[before]))
    best: tuple[float, str, int] = (0.0, "nothing that a rank measured", files[0].rank or 0)
    for file in files:
        amounts, width = file.steps.amounts, file.steps.amounts.shape[1]
        if len(amounts) < at + 2:
            continue
        phases = {
            name: amounts[:, column] for column, name in enumerate(file.phys[:width]) if not name.startswith("comm.")
        }
        phases["contention"] = file.steps.off_cpu[:, 1]
        phases["between phases"] = file.steps.t1 - file.steps.t0 - amounts.sum(axis=1)
        for name, times in phases.items():
            moved = float(np.median(times[after]) - np.median(times[before]))
            best = max(best, (moved if up else -moved, name, file.rank or 0))
    return Change(
        step=int(files[0].steps.step[at]),
        before_s=float(np.median(own[before])),
        after_s=float(np.median(own[after])),
        phase=best[1],
        rank=best[2],
    )
