"""How far the clocks of hosts are apart, from collectives alone (research/ledger.md 3.10).

No collective that needs everybody can be done anywhere before it was issued everywhere: each one bounds the difference
of two clocks from both sides. Within these bounds the best guess is that an all-reduce ends everywhere at once; it is
off by at most half of what the bytes took. A step has many of them, and is aligned by itself, so drift between steps
does not matter.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from argosy.journal.collectives import Call

SYMMETRIC = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"))

ENDS_TOGETHER = frozenset(("all_reduce", "barrier"))


@dataclass(frozen=True)
class Offset:
    """What to add to a clock's stamps so that they are on the reference's; the truth is within `error_ns` of it."""

    ns: int
    error_ns: int


@dataclass
class _Pair:
    """What is known of how far clock b is ahead of clock a [ns]."""

    low: float = -np.inf
    high: float = np.inf
    ends: list[int] = field(default_factory=list)
    """Differences of ends that should coincide."""
    halves: list[float] = field(default_factory=list)
    """By how much each of these may be off."""

    def ahead(self) -> Offset | None:
        if not np.isfinite(self.low) or not np.isfinite(self.high):
            return None
        low, high = min(self.low, self.high), max(self.low, self.high)  # crossed only by the error of stamps
        if self.ends:
            error = float(np.median(self.halves)) / len(self.ends) ** 0.5
            guess = min(max(float(np.median(self.ends)), low), high)
            return Offset(round(guess), round(min(error, high - low)))
        return Offset(round((low + high) / 2), round((high - low) / 2))


def align(instances: Iterable[Sequence[tuple[str, Call]]], reference: str) -> dict[str, Offset]:
    """Offset of each clock; of those that no chain of collectives ties to `reference` nothing is said.

    `instances` are the calls of one collective, each with the clock (boot id) of its stamps.
    """
    pairs: dict[tuple[str, str], _Pair] = defaultdict(_Pair)
    for instance in instances:
        issued: dict[str, int] = {}
        done: dict[str, int] = {}
        together = True
        for clock, call in instance:
            if call.operation in SYMMETRIC and call.done_ns:
                issued[clock] = max(issued.get(clock, call.issued_ns), call.issued_ns)
                done[clock] = min(done.get(clock, call.done_ns), call.done_ns)
                together &= call.operation in ENDS_TOGETHER
        for a in issued:
            for b in issued:
                if a == b:
                    continue
                pair = pairs[a, b]
                pair.low = max(pair.low, issued[b] - done[a])
                pair.high = min(pair.high, done[b] - issued[a])
                if together:
                    pair.ends.append(done[b] - done[a])
                    pair.halves.append(min(done[a] - issued[a], done[b] - issued[b]) / 2)
    ahead = {pair: found for pair, known in pairs.items() if (found := known.ahead())}
    return _chained(ahead, reference)


def _chained(ahead: Mapping[tuple[str, str], Offset], reference: str) -> dict[str, Offset]:
    """Follow the pairs from the reference outwards, the surest first."""
    known = {reference: Offset(0, 0)}
    while True:
        found = None
        for (a, b), by in ahead.items():
            if a in known and b not in known:
                error = known[a].error_ns + by.error_ns
                if found is None or error < found[1].error_ns:
                    found = b, Offset(known[a].ns - by.ns, error)
        if found is None:
            return known
        known[found[0]] = found[1]
