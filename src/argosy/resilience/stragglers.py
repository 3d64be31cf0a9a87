"""Which rank needs longer than the others for the same work.

Compared is each rank's *own* time of a step, without its waits in collectives: in the sum everybody is as slow as the
slowest. A window of :data:`WINDOW` steps flags a rank whose median is :data:`MARGIN` and :data:`LEAST_NS` above that of
the others, and that was slower than every other in :data:`SHARE` of the steps: on a crowded machine the scheduler makes
another rank slow each time. One window is a suspicion; two in a row are a finding. Ranks that are all slow alike differ
from nobody, so nobody is blamed.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from argosy.resilience.signs import Sign

WINDOW = 20
MARGIN = 0.06
LEAST_NS = 3_000_000
"""Rank 0 steers, and reads files for it: in very short steps that is a large share."""
SHARE = 0.8
_NOT_BEFORE = 5
"""First steps of an attempt, which fill caches unevenly."""


@dataclass(frozen=True)
class Slow:
    """A rank that a window has flagged."""

    rank: int
    excess: float
    """Share by which its median own time exceeds that of the others."""
    up_to_step: int
    """Steps of the attempt that had been seen."""
    lasting: bool
    """The window before has flagged it too."""

    @property
    def text(self) -> str:
        return f"{self.excess:+.0%} own time against the other ranks over {WINDOW} steps"

    def record(self) -> dict[str, object]:
        return {
            "rank": self.rank,
            "excess": round(self.excess, 4),
            "steps": self.up_to_step,
            "lasting": self.lasting,
        }


class Stragglers:
    """Give it the signs as they come; it takes the steps that it has not seen from their pages."""

    def __init__(self) -> None:
        self._own_ns: dict[int, dict[int, int]] = {}
        self._begin = _NOT_BEFORE
        self._flagged: int | None = None
        self._told: set[int] = set()

    def look(self, signs: Sequence[Sign]) -> list[Slow]:
        """Ranks that windows which are now complete have flagged; one that lasts is said once."""
        for sign in signs:
            if sign.beat is not None:
                first = sign.beat.steps - len(sign.beat.own_ns)
                steps = enumerate(sign.beat.own_ns, start=first)
                self._own_ns.setdefault(sign.rank, {}).update(step for step in steps if step[0] >= self._begin)
        found = []
        while len(self._own_ns) > 1 and all(self._begin + WINDOW - 1 in own for own in self._own_ns.values()):
            found += self._judge()
            self._begin += WINDOW
            for own in self._own_ns.values():
                for step in [step for step in own if step < self._begin]:
                    del own[step]
        return found

    def _judge(self) -> list[Slow]:
        steps = range(self._begin, self._begin + WINDOW)
        if any(step not in own for own in self._own_ns.values() for step in steps):
            return []  # it was away for longer than the ring holds
        slow = {rank: excess for rank in self._own_ns if (excess := self._excess(rank, steps)) is not None}
        rank = max(slow, key=lambda rank: slow[rank], default=None)
        before, self._flagged = self._flagged, rank
        if rank is None:
            return []
        lasting = rank == before
        if lasting and rank in self._told:
            return []
        if lasting:
            self._told.add(rank)
        return [Slow(rank, slow[rank], self._begin + WINDOW, lasting)]

    def _excess(self, rank: int, steps: range) -> float | None:
        mine = self._own_ns[rank]
        others = [own for other, own in self._own_ns.items() if other != rank]
        median_ns = statistics.median(statistics.median(own[step] for own in others) for step in steps)
        mine_ns = statistics.median(mine[step] for step in steps)
        slowest = sum(mine[step] > max(own[step] for own in others) for step in steps)
        large = mine_ns > (1 + MARGIN) * median_ns and mine_ns > median_ns + LEAST_NS
        return mine_ns / median_ns - 1 if large and slowest >= SHARE * WINDOW else None
