"""Lays out what every file says about one device as intervals in levels; the sweep decides who wins.

Levels from below (research/ledger.md 3.2): the attempt, or the gap where none was; what is known without the rank's
word; the launcher's spans for all its devices; step windows; spans by depth; the tail after the last sign of life.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from argosy.journal.phys import MATH, STEP_EXTERNAL
from argosy.journal.reader import OPEN, JournalFile
from argosy.ledger.accounts import PHYS
from argosy.ledger.attempts import Seat, Source
from argosy.ledger.exposed import Division
from argosy.ledger.fate import AT_RISK, LOST, NONE, Visits
from argosy.ledger.paid import PaidDevice
from argosy.ledger.refusals import Refusals, record
from argosy.ledger.step_times import divide_communication, step_times
from argosy.ledger.sweep import NOBODY
from argosy.ledger.waits import Waits
from argosy.ledger.warmup import Warmup

Ints = NDArray[np.int64]

P = {name: index for index, name in enumerate(PHYS)}
_EXTERNAL = np.array([name in STEP_EXTERNAL for name in PHYS])
_MATH = np.array([name in MATH for name in PHYS])

BACKGROUND, KNOWN, AGENT, STEP, SPAN, TAIL = 0, 1, 2, 3, 4, 1_000

CLOCK_ERROR_NS = 20_000_000
"""A process's start comes from the kernel in ticks of 10 ms, rounded down: a rank's first span may begin so early."""

_STATES = {"spare": "spare", "unallocated": "not_allocated"}

INHERITED = -1
"""Fate of a segment that shares the fate of the step it is in."""


@dataclass
class Columns:
    """The intervals of a device, one row each."""

    t0: Ints
    t1: Ints
    level: Ints
    phys: Ints
    """Index into PHYS."""
    fate: Ints
    """Index into FATES, or `INHERITED`."""
    visit: Ints
    """Row of `Visits`, or `NOBODY`."""
    imputed: Ints
    """1 if concluded from silence."""


@dataclass
class Reported:
    """Times that segments report without placing them."""

    segment: Ints
    times: Ints
    """[rows, PHYS]"""
    attempt: int
    file: JournalFile
    seq: Ints
    estimated: Ints
    """[rows, PHYS] the part of `times` that is an estimate."""


@dataclass
class Segments:
    """Everything about one device, laid out."""

    device: PaidDevice
    visits: Visits
    refusals: Refusals
    live: bool = False
    as_of_ns: int | None = None
    waits: Mapping[int, Waits] = field(default_factory=dict)
    """By attempt; without it exposed communication is not divided."""
    reported: list[Reported] = field(default_factory=list)
    warmups: list[Warmup] = field(default_factory=list)
    seats: list[Seat] = field(default_factory=list)
    count: int = 0
    _parts: list[Sequence[Ints]] = field(default_factory=list)

    def columns(self) -> Columns:
        return Columns(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))

    def lay(self, seats: Sequence[Seat]) -> None:
        """Lay out the attempts `seats` of the device's host, in order, and the gaps between them."""
        host = self.device.name.rpartition("/")[0]
        for seat in seats:
            paid = any(i.t0_ns < seat.end_ns and seat.start_ns < i.t1_ns for i in self.device.declared)
            if seat.host != host or not paid:
                continue
            if self.seats and seat.start_ns < self.seats[-1].end_ns:
                both = f"attempts {self.seats[-1].attempt} and {seat.attempt}"
                self.refusals.refuse(f"{both} hold {self.device.name} at once", f"events/attempt-{seat.attempt}")
                continue
            self.seats.append(seat)
            self._seat(seat)
        self._gaps()

    def _add(
        self,
        t0: Ints | int,
        t1: Ints | int,
        level: Ints | int,
        phys: Ints | int,
        *,
        fate: Ints | int = NONE,
        visit: Ints | int = NOBODY,
        imputed: Ints | bool = False,
    ) -> int:
        """Add one interval or arrays of them; returns the index of the first."""
        columns = np.broadcast_arrays(*(np.atleast_1d(c) for c in (t0, t1, level, phys, fate, visit, imputed)))
        self._parts.append([column.astype(np.int64) for column in columns])
        first, self.count = self.count, self.count + len(columns[0])
        return first

    # -- one attempt -------------------------------------------------------------------------------

    def _seat(self, seat: Seat) -> None:
        self._add(seat.start_ns, seat.end_ns, BACKGROUND, P["unattributed"])
        for agent in seat.agents:
            self._spans(agent, seat, AGENT)
        source = seat.ranks.get(self.device.name)
        if source is None:
            self._add(seat.start_ns, seat.end_ns, KNOWN, P["no_telemetry" if seat.expected > 0 else "spare"])
            return
        begin_ns = max(source.file.header["proc_start"] + source.offset_ns, seat.start_ns)
        self._add(seat.start_ns, begin_ns, KNOWN, P["startup.process_start"])
        self._steps(source, seat)
        self._spans(source, seat, SPAN)
        self._tail(source, seat)

    def _steps(self, source: Source, seat: Seat) -> None:
        file, steps = source.file, source.file.steps
        t0, t1 = steps.t0 + source.offset_ns, steps.t1 + source.offset_ns
        use = np.ones(len(steps), bool) if self.as_of_ns is None else t1 <= self.as_of_ns
        outside = (t0 < seat.start_ns) | (t1 > seat.end_ns)
        reach = np.maximum.accumulate(np.where(outside, 0, t1))
        for why, bad in (
            ("ends before it begins", t1 < t0),
            ("is outside of its attempt", outside),
            ("begins before the one before it ends", t0 < np.concatenate((t0[:1], reach[:-1]))),
        ):
            for row in np.flatnonzero(bad & use):
                self.refusals.refuse(f"window of step {steps.step[row]} {why}", record(file, steps.seq[row]))
            use &= ~bad
        rows = np.flatnonzero(use)
        if not len(rows):
            return
        t0, t1, seq = t0[rows], t1[rows], steps.seq[rows]
        # Numbers are missing between two steps that do not touch: the records between them were lost or dropped.
        gap = np.flatnonzero((t0[1:] > t1[:-1]) & _numbers_missing(file, seq))
        self._add(t1[gap], t0[gap + 1], STEP, P["torn"], imputed=True)
        waits = self.waits[file.attempt].steps.get(file.rank or 0) if file.attempt in self.waits else None
        found = step_times(file, rows, _by_phys(steps.amounts[rows], file.phys), waits)
        self.warmups.append(found.warmup)
        ids = self.visits.rows_of(file.attempt, steps.step[rows], steps.visit[rows])
        first = self._add(t0, t1, STEP, P["unattributed"], fate=self.visits.fate[ids], visit=ids)
        places = first + np.arange(len(rows))
        self.reported.append(Reported(places, found.times, file.attempt, file, seq, found.estimated))

    def _spans(self, source: Source, seat: Seat, level: int) -> None:
        file, spans = source.file, source.file.spans
        if not len(spans):
            return
        t0, t1 = spans.t0 + source.offset_ns, spans.t1 + source.offset_ns
        silent_ns = source.alive_ns if source.closed_ns is None else source.closed_ns
        # open, or closed only after the cut-off
        still_open = (spans.t1 == OPEN) | ((t1 > silent_ns) if self.as_of_ns is not None else False)
        t1 = np.where(still_open, silent_ns, t1)
        use = t0 < silent_ns if self.as_of_ns is not None else np.ones(len(spans), bool)
        t0 = np.where((t0 < seat.start_ns) & (t0 >= seat.start_ns - CLOCK_ERROR_NS), seat.start_ns, t0)
        for why, bad in (
            ("ends before it begins", t1 < t0),
            ("is outside of its attempt", (t0 < seat.start_ns) | (t1 > seat.end_ns)),
        ):
            for row in np.flatnonzero(bad & use):
                self.refusals.refuse(f"span {spans.names[spans.phys[row]]} {why}", record(file, spans.seq[row]))
            use &= ~bad
        rows = np.flatnonzero(use)
        phys = np.array([P.get(name, P["unmapped"]) for name in spans.names])[spans.phys[rows]]
        height = level + (spans.depth[rows] if level == SPAN else 0)
        fate = np.where(_EXTERNAL[phys], NONE, INHERITED)
        first = self._add(t0[rows], t1[rows], height, phys, fate=fate, imputed=still_open[rows])
        inside = np.isin(spans.nested_rows, rows)
        if inside.any():
            times = _by_phys(spans.nested[inside], file.phys)
            times[:, _MATH] = 0  # an evaluation's forward is evaluation
            estimated = np.zeros_like(times)
            if file.rank is not None and file.attempt in self.waits:
                waits = self.waits[file.attempt].spans[file.rank]
                divide_communication(
                    times, estimated, Division(waits.wait[inside], waits.untold[inside], waits.exact[inside])
                )
            outer = spans.nested_rows[inside]
            segment = first + np.searchsorted(rows, outer)
            self.reported.append(Reported(segment, times, file.attempt, file, spans.seq[outer], estimated))

    def _tail(self, source: Source, seat: Seat) -> None:
        """The step under way when the file ends, and the silence from the last sign of life to the attempt's end."""
        if source.closed_ns is not None:
            self._add(source.closed_ns, max(source.closed_ns, seat.end_ns), TAIL, P["teardown"])
            return
        alive_ns = min(source.alive_ns, seat.end_ns)
        running = not seat.ended and self.live
        begin_ns = self._under_way_ns(source)
        if begin_ns is not None and begin_ns < alive_ns:
            phys = "torn" if source.cut_short else "unattributed"
            fate = NONE if source.cut_short else AT_RISK if running else LOST
            self._add(begin_ns, alive_ns, STEP, P[phys], fate=fate, imputed=True)
        if not running:
            silence = "detect" if not seat.clean else "torn" if source.cut_short else "teardown"
            self._add(alive_ns, seat.end_ns, TAIL, P[silence], imputed=True)

    def _under_way_ns(self, source: Source) -> int | None:
        """When the step without a record began; None before the first step."""
        file, spans = source.file, source.file.spans
        ends = file.steps.t1 + source.offset_ns
        if self.as_of_ns is not None:
            ends = ends[ends <= self.as_of_ns]
        if len(ends):
            return int(ends.max())
        if source.cut_short:
            return int(max([file.first_ns, *spans.t0, *spans.t1])) + source.offset_ns
        # a model was built and no span is open: the first step is under way
        last_ns = int(spans.t1.max(initial=OPEN)) + source.offset_ns
        built = "startup.model_init" in spans.names and OPEN not in spans.t1
        return last_ns if built and last_ns < source.alive_ns else None

    # -- between attempts --------------------------------------------------------------------------

    def _gaps(self) -> None:
        """Time in no attempt; what of it was not paid for is not counted."""
        if not self.device.declared:
            return
        edges = [None, *self.seats, None]
        for before, after in pairwise(edges):
            t0 = before.end_ns if before else self.device.declared[0].t0_ns
            t1 = after.start_ns if after else self.device.declared[-1].t1_ns
            if t0 >= t1:
                continue
            if after is None or (before and before.meant_to_stop):
                phys = "no_process.held"
            else:
                phys = "no_process.between" if before else "no_process.before"
            self._add(t0, t1, BACKGROUND, P[phys])
            for interval in self.device.declared:
                begin, end = max(t0, interval.t0_ns), min(t1, interval.t1_ns)
                if interval.state != "allocated" and begin < end:
                    self._add(begin, end, KNOWN, P[_STATES.get(interval.state, "no_process.held")])


def _numbers_missing(file: JournalFile, seq: Ints) -> NDArray[np.bool_]:
    """For each two neighbouring steps, whether a record between them is missing."""
    events = [row["q"] for row in file.events]
    numbers = np.sort(np.concatenate((file.steps.seq, file.spans.seq, file.spans.close_seq, events)))
    return np.diff(seq) > np.diff(np.searchsorted(numbers, seq))


def _by_phys(times: Ints, names: Sequence[str]) -> Ints:
    """Columns by a file's header → columns by PHYS. Names that are not known count as unmapped."""
    out = np.zeros((len(times), len(PHYS)), np.int64)
    for column, name in enumerate(names[: times.shape[1]]):
        out[:, P.get(name, P["unmapped"])] += times[:, column]
    return out
