"""How far the clocks of hosts are apart, from collectives alone (research/ledger.md 3.10).

No collective that needs everybody can be done anywhere before it was issued everywhere. Each one so bounds the
difference of two clocks from both sides, and a step has many: what they leave is an interval whose half is the error.
Bounds are taken step by step, so drift between steps does not matter.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from argosy.journal.collectives import Call

SYMMETRIC = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"))


@dataclass(frozen=True)
class Offset:
    """What to add to a clock's stamps so that they are on the reference's; the truth is within `error_ns` of it."""

    ns: int
    error_ns: int


def align(instances: Iterable[Sequence[tuple[str, Call]]], reference: str) -> dict[str, Offset]:
    """Offset of each clock; of those that no chain of collectives ties to `reference` nothing is said.

    `instances` are the calls of one collective, each with the clock (boot id) of its stamps.
    """
    low: dict[tuple[str, str], float] = defaultdict(lambda: -np.inf)  # (a, b): clock b = clock a + something above...
    high: dict[tuple[str, str], float] = defaultdict(lambda: np.inf)  # ...and below this
    for instance in instances:
        issued: dict[str, int] = {}
        done: dict[str, int] = {}
        for clock, call in instance:
            if call.operation in SYMMETRIC and call.done_ns:
                issued[clock] = max(issued.get(clock, call.issued_ns), call.issued_ns)
                done[clock] = min(done.get(clock, call.done_ns), call.done_ns)
        for a in issued:
            for b in issued:
                if a != b:
                    low[a, b] = max(low[a, b], issued[b] - done[a])
                    high[a, b] = min(high[a, b], done[b] - issued[a])
    return _chained(low, high, reference)


def _chained(
    low: Mapping[tuple[str, str], float], high: Mapping[tuple[str, str], float], reference: str
) -> dict[str, Offset]:
    """Follow bounds from the reference outwards, the tightest first."""
    known = {reference: Offset(0, 0)}
    while True:
        found = None
        for (a, b), bound in low.items():
            if a in known and b not in known and np.isfinite(bound) and np.isfinite(high[a, b]):
                # b's clock is ahead of a's by something between the bounds; an empty interval is measurement error
                ahead = (bound + high[a, b]) / 2
                error = abs(high[a, b] - bound) / 2 + known[a].error_ns
                if found is None or error < found[1].error_ns:
                    found = b, Offset(round(known[a].ns - ahead), round(error))
        if found is None:
            return known
        known[found[0]] = found[1]
