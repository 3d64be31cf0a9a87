"""The run over time: which accounts took the time when, and what each attempt was in.

Both lie on *run hours*: wall time in which at least one device was paid. Pauses that nobody paid for are cut out, so
that a run that was stopped on Friday and continued on Monday is still a picture of its work.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.journal.reader import OPEN
from argosy.ledger.accounts import FATES, account
from argosy.ledger.attempts import Source
from argosy.ledger.books import AttemptBooks, Books
from argosy.ledger.fate import Visits
from argosy.ledger.paid import Interval

Ints = NDArray[np.int64]

SLICES = 60
FINEST = 1 / 1500
"""Share of the run's length below which two bars of one account are drawn as one."""


@dataclass(frozen=True)
class Bar:
    """One attempt was in one account from `t0_ns` to `t1_ns` on the run's clock, as its first rank saw it."""

    account: str
    t0_ns: int
    t1_ns: int


@dataclass(frozen=True)
class Track:
    """One attempt."""

    attempt: int
    bars: list[Bar]


@dataclass(frozen=True)
class TimeLine:
    """The run's clock starts at 0 with the first paid moment and stands still while nothing is paid."""

    length_ns: int
    pauses: list[int]
    """Where on the run's clock time was cut out."""
    edges_ns: list[int]
    """The slices' bounds; slice i lies between edges i and i + 1."""
    accounts: dict[str, list[int]]
    """Account → device-ns in each slice; they sum to the account."""
    tracks: list[Track]


class RunHours:
    """Turns run time into the run's clock and back."""

    def __init__(self, intervals: Iterable[Interval]):
        self._begins: list[int] = []
        self._ends: list[int] = []
        for interval in sorted(intervals, key=lambda i: i.t0_ns):
            if self._ends and interval.t0_ns <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], interval.t1_ns)
            else:
                self._begins.append(interval.t0_ns)
                self._ends.append(interval.t1_ns)
        lengths = [end - begin for begin, end in zip(self._begins, self._ends, strict=True)]
        self._before = np.cumsum([0, *lengths]).tolist()

    @property
    def length_ns(self) -> int:
        return int(self._before[-1])

    @property
    def pauses(self) -> list[int]:
        return [int(at) for at in self._before[1:-1]]

    def of(self, t_ns: int) -> int:
        """The run's clock at a moment of run time; in a pause it stands."""
        index = bisect_right(self._begins, t_ns) - 1
        if index < 0:
            return 0
        return int(self._before[index]) + min(t_ns, self._ends[index]) - self._begins[index]

    def back(self, at_ns: int) -> int:
        """The first moment of run time at which the run's clock shows `at_ns`."""
        index = min(max(bisect_right(self._before, at_ns - 1) - 1, 0), len(self._begins) - 1)
        return self._begins[index] + at_ns - int(self._before[index])

    def edges(self, slices: int) -> list[int]:
        """Bounds of equal slices on the run's clock, from 0 to its length."""
        return [self.length_ns * i // slices for i in range(slices + 1)]


def time_line(books: Books, leaders: Mapping[int, Source], agents: Mapping[int, Source], hours: RunHours) -> TimeLine:
    """The picture of `books`, which were cut at the inner edges of `hours`; sources are by attempt."""
    names = dict.fromkeys(name for part in books.slices for name in part)
    return TimeLine(
        length_ns=hours.length_ns,
        pauses=hours.pauses,
        edges_ns=hours.edges(len(books.slices)),
        accounts={name: [part.get(name, 0) for part in books.slices] for name in sorted(names)},
        tracks=[
            Track(row.attempt, _bars(row, books.visits, leaders.get(row.attempt), agents.get(row.attempt), hours))
            for row in books.attempts
        ],
    )


def _bars(
    attempt: AttemptBooks, visits: Visits, leader: Source | None, agent: Source | None, hours: RunHours
) -> list[Bar]:
    """What lies over what: the attempt, what its launcher did, its steps, its spans, its silent end."""
    silent = "unattributed.residual" if leader else "unattributed.no_telemetry"
    layers = [(silent, attempt.start_ns, attempt.end_ns)]
    if leader:
        begin_ns = leader.file.header["proc_start"] + leader.offset_ns
        layers.append(("stability.process_start", attempt.start_ns, max(begin_ns, attempt.start_ns)))
    layers += _spans(agent) if agent else []
    if leader:
        layers += [*_steps(visits, attempt.attempt, leader), *_spans(leader)]
        if leader.alive_ns < attempt.end_ns and attempt.ended:
            silence = "stability.teardown" if attempt.clean else "stability.detect"
            layers.append((silence, leader.alive_ns, attempt.end_ns))
    return _merged([Bar(name, hours.of(t0), hours.of(t1)) for name, t0, t1 in layers], hours.length_ns * FINEST)


def _steps(visits: Visits, attempt: int, leader: Source) -> Iterable[tuple[str, int, int]]:
    """Stretches of steps of one fate."""
    steps = leader.file.steps
    if not len(steps):
        return
    fate = visits.fate[visits.rows_of(attempt, steps.step, steps.visit)]
    breaks = np.flatnonzero(np.diff(fate)) + 1
    for rows in np.split(np.arange(len(steps)), breaks):
        first, last = rows[0], rows[-1]
        name = account("forward", FATES[fate[first]])
        yield name, int(steps.t0[first]) + leader.offset_ns, int(steps.t1[last]) + leader.offset_ns


def _spans(leader: Source) -> Iterable[tuple[str, int, int]]:
    """What was no step: start-up phases, evaluations, saves."""
    spans = leader.file.spans
    for row in np.flatnonzero(spans.depth == 0):
        end_ns = leader.alive_ns if spans.t1[row] == OPEN else int(spans.t1[row]) + leader.offset_ns
        name = account(spans.names[spans.phys[row]], "none")
        yield name, int(spans.t0[row]) + leader.offset_ns, end_ns


def _merged(bars: Sequence[Bar], least_ns: float) -> list[Bar]:
    """Neighbours of one account as one bar where the gap between them could not be seen; slivers left out."""
    merged: list[Bar] = []
    for bar in bars:
        last = merged[-1] if merged else None
        if last and last.account == bar.account and 0 <= bar.t0_ns - last.t1_ns < least_ns:
            merged[-1] = Bar(bar.account, last.t0_ns, bar.t1_ns)
        elif bar.t1_ns > bar.t0_ns:
            merged.append(bar)
    return [bar for bar in merged if bar.t1_ns - bar.t0_ns >= least_ns]
