"""How much of an attempt's first steps was warm-up: compiling, allocating, first connections, cold caches.

The rule, for each rank and attempt by itself. Take the visits in order and add up the self times of `WARM` phases of
each. The attempt has *settled* at the first visit that closes `STREAK` visits whose sums lie within `SPREAD` of their
median. The medians of these visits, phase by phase, are the reference. Of every earlier visit whose sum is more than
`EXCESS` above the reference's, what exceeds the reference in each phase is warm-up. An attempt that does not settle
within its first `PATIENCE` visits has no warm-up, and its books say so.

The rule is causal: nothing after the settling visit is looked at, so later data never change what was once booked.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.journal.phys import AXES

Ints = NDArray[np.int64]

WARM = ("forward", "backward", "optimizer", "h2d_copy", *(f"comm.exposed.{axis}" for axis in AXES))
STREAK = 5
SPREAD = 0.25
"""(largest − smallest) ÷ median."""
EXCESS = 0.05
PATIENCE = 100


@dataclass(frozen=True)
class Warmup:
    """What was decided for one rank in one attempt, for the log."""

    attempt: int
    rank: int
    settled_visit: int | None
    """Number of the visit at which it settled, from 0; None if it did not."""
    reference_ns: int
    moved_ns: int


def settle(attempt: int, rank: int, amounts: Ints, warm: NDArray[np.bool_]) -> tuple[Ints, Warmup]:
    """Excess over the settled times, same shape as `amounts` [visits, phases]; `warm` marks the columns of WARM."""
    excess = np.zeros_like(amounts)
    sums = amounts[:PATIENCE, warm].sum(axis=1)
    if len(sums) < STREAK:
        return excess, Warmup(attempt, rank, None, 0, 0)
    streaks = np.lib.stride_tricks.sliding_window_view(sums, STREAK)
    steady = np.ptp(streaks, axis=1) <= SPREAD * np.median(streaks, axis=1)
    if not steady.any():
        return excess, Warmup(attempt, rank, None, 0, 0)
    first = int(np.argmax(steady))
    reference = np.sort(amounts[first : first + STREAK], axis=0)[STREAK // 2] * warm
    total_ns = int(reference.sum())
    slow = np.flatnonzero(sums[:first] > (1 + EXCESS) * total_ns)
    excess[slow] = np.maximum(amounts[slow] - reference, 0) * warm
    return excess, Warmup(attempt, rank, first + STREAK - 1, total_ns, int(excess.sum()))
