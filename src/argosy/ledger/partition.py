"""Divides one device's paid time by attempt, by what it was doing and by what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.ledger.accounts import FATES, PHYS
from argosy.ledger.fate import NONE
from argosy.ledger.refusals import record
from argosy.ledger.segments import INHERITED, STEP, Columns, P, Reported, Segments
from argosy.ledger.sweep import NOBODY, sweep

Ints = NDArray[np.int64]


@dataclass
class Cells:
    """Device-ns of one device."""

    by_attempt: Ints
    """[attempts, PHYS, FATES] a gap belongs to the attempt after it, the last one to the attempt before it."""
    imputed: Ints
    """[PHYS, FATES] the part of it that was concluded from silence, not written by anybody."""
    estimated: Ints
    """[PHYS, FATES] the part of it that was divided by shares of other steps or by comparing ranks."""
    overlapped: Ints
    """[PHYS] time hidden under other spans, in no cell."""
    by_slice: Ints
    """[slices, PHYS, FATES] the same as `by_attempt`, cut by time."""


def partition(segments: Segments, attempts: Sequence[int], by_visit: Ints, edges: Sequence[int] = ()) -> Cells:
    """Sweep the segments and add up what was paid.

    `attempts` are those of the whole run; what visits held is added to `by_visit` [visits, PHYS]. `edges` (run time,
    ascending) cut it into slices too: before the first edge, between two, from the last on.
    """
    cells = Cells(
        by_attempt=np.zeros((max(len(attempts), 1), len(PHYS), len(FATES)), np.int64),
        imputed=np.zeros((len(PHYS), len(FATES)), np.int64),
        estimated=np.zeros((len(PHYS), len(FATES)), np.int64),
        overlapped=np.zeros(len(PHYS), np.int64),
        by_slice=np.zeros((len(edges) + 1, len(PHYS), len(FATES)), np.int64),
    )
    if segments.count and segments.device.intervals:
        _Count(segments, attempts, by_visit, cells, np.array(edges, np.int64)).run()
    return cells


class _Count:
    """The pieces of one device, and what is moved between cells."""

    def __init__(self, segments: Segments, attempts: Sequence[int], by_visit: Ints, cells: Cells, edges: Ints):
        self.segments = segments
        self.cells = cells
        self.by_visit = by_visit
        self.rows: Columns = segments.columns()
        self.attempt_row = {attempt: row for row, attempt in enumerate(attempts)}
        device = segments.device
        line = sweep(
            self.rows.t0, self.rows.t1, self.rows.level, floor=STEP, cuts=np.concatenate((device.t0, device.t1, edges))
        )
        begins = line.bounds[:-1]
        at = np.searchsorted(device.t0, begins, "right") - 1
        self.paid = (at >= 0) & (begins < device.t1[at])
        self.begins, self.lengths = begins, line.lengths
        self.slice = np.searchsorted(edges, begins, "right")
        self.owner, self.below = line.owner, line.below
        self.overlapped = line.overlapped

    def run(self) -> None:
        rows, paid = self.rows, self.paid
        owner, below, lengths = self.owner[paid], self.below[paid], self.lengths[paid]
        assert not len(owner) or owner.min() >= 0, "a paid moment is neither in an attempt nor in a gap"
        inherits = rows.fate[owner] == INHERITED
        in_step = rows.level[below] == STEP
        fate = np.where(inherits, np.where(in_step, rows.fate[below], NONE), rows.fate[owner])
        visit = np.where(inherits, rows.visit[below], rows.visit[owner])
        phys = rows.phys[owner]
        np.add.at(self.cells.by_attempt, (self._attempts(), phys, fate), lengths)
        np.add.at(self.cells.by_slice, (self.slice[paid], phys, fate), lengths)
        guessed = rows.imputed[owner] == 1
        np.add.at(self.cells.imputed, (phys[guessed], fate[guessed]), lengths[guessed])
        known = visit != NOBODY
        np.add.at(self.by_visit, (visit[known], phys[known]), lengths[known])
        np.add.at(self.cells.overlapped, rows.phys, self.overlapped)

        exposed = np.zeros(len(rows.t0), np.int64)
        np.add.at(exposed, self.owner[self.owner >= 0], self.lengths[self.owner >= 0])
        exposed_paid = np.zeros(len(rows.t0), np.int64)
        np.add.at(exposed_paid, owner, lengths)
        first_slice, last_slice = np.full(len(rows.t0), len(self.cells.by_slice)), np.full(len(rows.t0), -1)
        np.minimum.at(first_slice, owner, self.slice[paid])
        np.maximum.at(last_slice, owner, self.slice[paid])
        for reported in self.segments.reported:
            self._place(reported, exposed, exposed_paid, np.where(first_slice == last_slice, first_slice, NOBODY))

    def _attempts(self) -> Ints:
        """Row of the attempt of each paid piece."""
        seats = self.segments.seats
        begins = self.begins[self.paid]
        if not seats:
            return np.zeros(len(begins), np.int64)
        starts = np.array([seat.start_ns for seat in seats], np.int64)
        ends = np.array([seat.end_ns for seat in seats], np.int64)
        seat = np.searchsorted(starts, begins, "right") - 1
        in_gap = (seat < 0) | (begins >= ends[seat])
        row = np.array([self.attempt_row[seat.attempt] for seat in seats], np.int64)
        return row[np.minimum(seat + in_gap, len(seats) - 1)]

    def _place(self, reported: Reported, exposed: Ints, exposed_paid: Ints, only_slice: Ints) -> None:
        """Move reported times out of what is left of their segments; what does not fit is refused.

        `only_slice` is the slice that a segment lies in whole, else `NOBODY`.
        """
        rows, segment, times = self.rows, reported.segment, reported.times
        sums = times.sum(axis=1)
        negative = np.any(times < 0, axis=1)
        bad = negative | (sums > exposed[segment])
        for row in np.flatnonzero(bad):
            excess = sums[row] - exposed[segment[row]]
            what = "are negative" if negative[row] else f"exceed what is left of it by {excess} ns"
            self.segments.refusals.refuse(f"times inside it {what}", record(reported.file, reported.seq[row]))
            pieces = np.flatnonzero((self.owner == segment[row]) & self.paid)
            torn = np.zeros((len(pieces), len(PHYS)), np.int64)
            torn[:, P["torn"]] = self.lengths[pieces]
            self._move_one(segment[row], pieces, torn, reported.attempt)
        whole = ~bad & (exposed[segment] == exposed_paid[segment]) & (rows.fate[segment] != INHERITED)
        for row in np.flatnonzero(~bad & ~whole & (exposed_paid[segment] > 0)):
            self._move_one(segment[row], *self._paid_parts(segment[row], times[row]), reported.attempt)
        segment, times, sums, guessed = segment[whole], times[whole], sums[whole], reported.estimated[whole]
        page = self.cells.by_attempt[self.attempt_row[reported.attempt]]
        fate, visit, phys = rows.fate[segment], rows.visit[segment], rows.phys[segment]
        for value in np.unique(fate):
            page[:, value] += times[fate == value].sum(axis=0)
            self.cells.estimated[:, value] += guessed[fate == value].sum(axis=0)
        np.subtract.at(page, (phys, fate), sums)
        in_one = only_slice[segment] != NOBODY
        self._slice_many(only_slice[segment[in_one]], phys[in_one], fate[in_one], times[in_one])
        for row in np.flatnonzero(~in_one):
            pieces, parts = self._paid_parts(segment[row], times[row])
            self._slice_many(*self._same(pieces, phys[row], fate[row]), parts)
        known = visit != NOBODY
        np.add.at(self.by_visit, visit[known], times[known])
        np.subtract.at(self.by_visit, (visit[known], phys[known]), sums[known])

    def _paid_parts(self, segment: int, times: Ints) -> tuple[Ints, Ints]:
        """The paid pieces of a segment, and the times in each [pieces, PHYS].

        Nobody knows where in the segment they were. They are laid out in the order of PHYS, so that the parts of a
        segment that is cut by the end of a paid interval, a change of price or a slice, sum to the whole.
        """
        mine = np.flatnonzero(self.owner == segment)
        ends = np.cumsum(self.lengths[mine])[:, None]
        edges = np.concatenate(([0], np.cumsum(times)))
        parts = np.diff(np.clip(edges, ends - self.lengths[mine][:, None], ends), axis=1)
        return mine[self.paid[mine]], parts[self.paid[mine]]

    def _slice_many(self, where: Ints, phys: Ints, fate: Ints, times: Ints) -> None:
        """Move times out of segments that lie in one slice each."""
        slices = self.cells.by_slice
        rows, columns = np.nonzero(times)
        np.add.at(slices, (where[rows], columns, fate[rows]), times[rows, columns])
        np.subtract.at(slices, (where, phys, fate), times.sum(axis=1))

    def _move_one(self, segment: int, pieces: Ints, parts: Ints, attempt: int) -> None:
        """The same as :meth:`_place` does for many, for a segment whose pieces may differ in fate, or that is not
        paid for as a whole; `parts` [pieces, PHYS] go out of its paid `pieces`."""
        rows, times = self.rows, parts.sum(axis=0)
        fate, visit = rows.fate[segment], rows.visit[segment]
        if fate == INHERITED:
            steps = {int(step) for step in self.below[pieces]}
            if len(steps) != 1:
                return  # over several steps: its nested times cannot be divided, and stay with the span
            step = steps.pop()
            fate = rows.fate[step] if rows.level[step] == STEP else NONE
            visit = rows.visit[step]
        page = self.cells.by_attempt[self.attempt_row[attempt]]
        page[:, fate] += times
        page[rows.phys[segment], fate] -= times.sum()
        self._slice_many(*self._same(pieces, rows.phys[segment], fate), parts)
        if visit != NOBODY:
            self.by_visit[visit] += times
            self.by_visit[visit, rows.phys[segment]] -= times.sum()

    def _same(self, pieces: Ints, phys: int, fate: int) -> tuple[Ints, Ints, Ints]:
        """Slice, phys and fate of each of a segment's pieces."""
        return self.slice[pieces], np.full(len(pieces), phys), np.full(len(pieces), fate)
