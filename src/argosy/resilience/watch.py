"""The part of the detection ladder that judges ranks which still run: frozen, held, or not getting on.

A small state machine over :class:`argosy.resilience.signs.Sign`. It has no clock and does no I/O of its own: the
supervisor shows it the signs with the time, and a test can show it any story.

Who is to blame: a rank that waits in a collective is a victim while another does not wait. A rank in a declared slow
phase (a compile, a load, a save, an evaluation) has that phase's limit, and those that wait for it wait with it.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from argosy.journal.heartbeat import State
from argosy.recipe.schema import ResilienceTable
from argosy.resilience.signs import Sign

Kind = Literal["frozen", "held", "stuck", "collective"]

MEANING: dict[Kind, str] = {
    "frozen": "its process is stopped",
    "held": "its interpreter has not run another thread",
    "stuck": "it makes no progress",
    "collective": "all ranks wait in a collective that none has left",
}
_STARTING_FACTOR = 12
"""How many times longer a rank that imports or builds may hold its interpreter than one that trains."""
_FIRST_STEPS = 2
"""Steps that may take as long as a slow phase: they allocate, compile and fill caches."""


@dataclass(frozen=True)
class Limits:
    """How long a rank may be silent or stand still [s]."""

    heartbeat_s: float = 5.0
    step_factor: float = 10.0
    step_floor_s: float = 5.0
    phase_s: float = 600.0

    @classmethod
    def from_recipe(cls, table: ResilienceTable) -> "Limits":
        return cls(
            heartbeat_s=table.heartbeat_limit_s,
            step_factor=table.step_limit_factor,
            step_floor_s=table.step_limit_s,
            phase_s=table.phase_limit_s,
        )


@dataclass(frozen=True)
class Finding:
    """A rank that must be ended, and why."""

    kind: Kind
    ranks: tuple[int, ...]
    """The guilty one, or all when nobody can be told from the others."""
    phase: str
    for_s: float
    """Since its last beat or its last progress."""
    limit_s: float

    @property
    def text(self) -> str:
        return f"{MEANING[self.kind]} for {self.for_s:.1f} s in {self.phase} (limit {self.limit_s:.1f} s)"


@dataclass(frozen=True)
class WaitingFor:
    """No fault: ranks wait for one that is in a declared slow phase."""

    rank: int
    phase: str
    for_s: float


@dataclass
class _Mark:
    """When a rank was last seen to get on."""

    at_ns: int
    seen: tuple[int, ...] = ()


class Watch:
    """Look at all ranks each half second or oftener."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self._marks: dict[int, _Mark] = {}
        self._steps_ns: deque[int] = deque(maxlen=63)
        self._steps = 0
        self._last_look_ns = 0
        self._excused_until_ns = 0
        self.waiting: WaitingFor | None = None
        """Set by a look that found a wait instead of a fault."""

    @property
    def step_s(self) -> float | None:
        """Median of the last steps."""
        return statistics.median(self._steps_ns) / 1e9 if self._steps_ns else None

    def look(self, now_ns: int, signs: Sequence[Sign]) -> Finding | None:
        """The first fault among `signs`, one for each rank that runs; None while all is well."""
        # Whoever stopped the whole machine, or this process, stopped the beats too: they get a new chance.
        if self._last_look_ns and now_ns - self._last_look_ns > self._limits.heartbeat_s / 2 * 1e9:
            self._excuse(now_ns)
        self._last_look_ns = now_ns
        self.waiting = None
        alive = [sign for sign in signs if sign.beat is not None and sign.beat.state != State.CLOSED]
        self._measure(alive)
        for sign in alive:
            self._mark(now_ns, sign)
        return self._silent(now_ns, alive) or self._standing(now_ns, alive, everyone=len(alive) == len(signs))

    def _excuse(self, now_ns: int) -> None:
        self._excused_until_ns = now_ns
        for mark in self._marks.values():
            mark.at_ns = now_ns

    def _measure(self, signs: Sequence[Sign]) -> None:
        ahead = max(signs, key=lambda sign: sign.beat.steps if sign.beat else 0, default=None)
        if ahead is not None and ahead.beat is not None and ahead.beat.steps > self._steps:
            self._steps = ahead.beat.steps
            if self._steps > _FIRST_STEPS:
                self._steps_ns.append(ahead.beat.step_ns)

    def _mark(self, now_ns: int, sign: Sign) -> None:
        beat = sign.beat
        assert beat is not None
        # In a slow phase each switch of phase is progress; in steps only a step is, or a livelock would look busy.
        seen = (beat.step, beat.steps, beat.span, beat.mono_ns if sign.span is not None else 0)
        mark = self._marks.setdefault(sign.rank, _Mark(now_ns))
        if seen != mark.seen:
            mark.seen, mark.at_ns = seen, now_ns

    def _silent(self, now_ns: int, signs: Sequence[Sign]) -> Finding | None:
        late: list[tuple[float, float, Sign]] = []
        for sign in signs:
            assert sign.beat is not None
            limit_s = self._limits.heartbeat_s
            if not sign.stopped and (sign.beat.state == State.STARTING or _slow(sign)):
                limit_s *= _STARTING_FACTOR
            silent_s = (now_ns - max(sign.beat.beat_ns, self._excused_until_ns)) / 1e9
            if sign.beat.beat_ns and silent_s > limit_s:
                late.append((silent_s, limit_s, sign))
        if not late:
            return None
        if len(late) == len(signs) > 1 and not any(sign.stopped for _, _, sign in late):
            # All at once: more likely a machine that is too busy than all ranks going wrong together.
            late = [found for found in late if found[0] > 3 * found[1]]
        late.sort(key=lambda found: (not found[2].stopped, found[2].waits, -found[0]))
        for silent_s, limit_s, sign in late:
            return Finding("frozen" if sign.stopped else "held", (sign.rank,), _place(sign), silent_s, limit_s)
        return None

    def _standing(self, now_ns: int, signs: Sequence[Sign], *, everyone: bool) -> Finding | None:
        still = {sign.rank: (now_ns - self._marks[sign.rank].at_ns) / 1e9 for sign in signs}
        over = [sign for sign in signs if still[sign.rank] > self._limit_s(sign)]
        if not over:
            return None
        guilty = [sign for sign in over if not sign.waits]
        if guilty:
            worst = max(guilty, key=lambda sign: still[sign.rank])
            return Finding("stuck", (worst.rank,), _place(worst), still[worst.rank], self._limit_s(worst))
        busy = [sign for sign in signs if not sign.waits]
        if busy or not everyone:  # they wait for a rank that is within its limit, or has not come yet
            if busy:
                slowest = max(busy, key=lambda sign: still[sign.rank])
                self.waiting = WaitingFor(slowest.rank, _place(slowest), still[slowest.rank])
            return None
        counts = {sign.rank: sign.beat.collectives for sign in signs if sign.beat}
        fewest = [rank for rank, count in counts.items() if count == min(counts.values())]
        ranks = tuple(fewest) if len(fewest) == 1 else tuple(sorted(counts))
        first = next(sign for sign in signs if sign.rank == ranks[0])
        return Finding("collective", ranks, _place(first), still[first.rank], self._limit_s(first))

    def _limit_s(self, sign: Sign) -> float:
        beat = sign.beat
        assert beat is not None
        if beat.state == State.STARTING or beat.steps <= _FIRST_STEPS or _slow(sign) or self.step_s is None:
            return self._limits.phase_s
        return max(self._limits.step_floor_s, self._limits.step_factor * self.step_s)


def _slow(sign: Sign) -> bool:
    return sign.span is not None or sign.phase in ("compile", "warmup")


def _place(sign: Sign) -> str:
    return sign.span or sign.phase or "no declared phase"
