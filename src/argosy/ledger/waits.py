"""Divides exposed communication into waiting for a slow rank and moving bytes, for every step of an attempt.

Sampled steps are divided by the stamps of their collectives (:mod:`argosy.ledger.join`). Of the others each rank
knows how long it stood still on each axis, and that is compared over the ranks of a group: all of them leave a
collective together, so what a rank stood still longer than the one that came last is waiting. What even that one
stood still, ``common``, is transfer, less the share of it that was waiting in sampled steps (in which ranks took turns
to be late). This part is an estimate and is marked so; it needs no clock.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from argosy.journal.phys import comm
from argosy.ledger.attempts import Source
from argosy.ledger.exposed import CHANNELS, Division, Floats, Ints
from argosy.ledger.groups import group_of_ranks
from argosy.ledger.join import Waited, join
from argosy.ledger.span_waits import divide_span_waits


@dataclass
class Held:
    """Who kept others waiting in the steps of an attempt: what the causal view is made of."""

    ranks: list[int]
    visits: list[tuple[int, int]]
    """(step, visit) of the columns below."""
    culprit: dict[tuple[str, int], Ints]
    """(channel, group) → [visits] index into `ranks` of the one that stood still least; -1 where nobody knows."""
    waited: dict[tuple[str, int], Floats]
    """(channel, group) → [visits] ns that the others of the group waited for it, 0 in sampled steps."""
    members: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """(channel, group) → ranks."""
    sampled: list[Waited] = field(default_factory=list)


@dataclass
class Waits:
    """An attempt's division by rank, for steps and for spans; and who held whom up."""

    steps: dict[int, Division]
    spans: dict[int, Division]
    span_waits: dict[tuple[int | None, str], int]
    """(rank that stood still least in a span, the span's name) → ns that others waited in it."""
    held: Held
    offsets: dict[tuple[int, str], int]


NOBODY_KNOWS = -1
NOT_THERE = np.iinfo(np.int64).max


def divide_waits(files: Iterable[Source]) -> Waits:
    """Divide the exposed communication of one attempt's rank files."""
    ranks = sorted(files, key=lambda source: source.file.rank or 0)
    world = max(source.file.header["world"] for source in ranks)
    sampled, offsets = join(ranks)
    visits, rows = _common_visits(ranks)
    numbers = [source.file.rank or 0 for source in ranks]
    comparison = _Comparison(ranks, rows, Held(numbers, visits, {}, {}, {}, sampled), _exact(ranks, sampled))
    layout = ranks[0].file.header.get("layout") or {}
    for channel in CHANNELS:
        comparison.divide(channel, group_of_ranks(layout, world, channel))
    spans, span_waits = divide_span_waits(ranks, world)
    return Waits(
        steps=dict(zip(numbers, comparison.divisions, strict=True)),
        spans=spans,
        span_waits=span_waits,
        held=comparison.held,
        offsets={key: offset.ns for key, offset in offsets.items()},
    )


def _groups(numbers: Sequence[int], group: Ints | None) -> Iterator[tuple[int, list[int], bool]]:
    """(group, its members as indices into `numbers`, whether all of them are there)."""
    if group is None:
        return
    inside: dict[int, list[int]] = {}
    for index, rank in enumerate(numbers):
        inside.setdefault(int(group[rank]), []).append(index)
    sizes = dict(zip(*(found.tolist() for found in np.unique(group, return_counts=True)), strict=True))
    for number, members in inside.items():
        yield number, members, len(members) == sizes[number]


def _common_visits(ranks: Sequence[Source]) -> tuple[list[tuple[int, int]], list[Ints]]:
    """All (step, visit) that any rank has, and for each rank which of them its rows are."""
    longest = max(ranks, key=lambda source: len(source.file.steps)).file.steps
    visits = list(zip(longest.step.tolist(), longest.visit.tolist(), strict=True))
    known: dict[tuple[int, int], int] = {}
    rows = []
    for source in ranks:
        steps = source.file.steps
        count = len(steps)
        if np.array_equal(steps.step, longest.step[:count]) and np.array_equal(steps.visit, longest.visit[:count]):
            rows.append(np.arange(count))
            continue
        known = known or {key: row for row, key in enumerate(visits)}
        mine = []
        for key in zip(steps.step.tolist(), steps.visit.tolist(), strict=True):
            if key not in known:
                known[key] = len(visits)
                visits.append(key)
            mine.append(known[key])
        rows.append(np.array(mine, np.int64))
    return visits, rows


def _column(source: Source, name: str) -> Ints:
    """A phase's time in each step of a file."""
    names, amounts = source.file.phys, source.file.steps.amounts
    position = names.index(name) if name in names else amounts.shape[1]
    return amounts[:, position] if position < amounts.shape[1] else np.zeros(len(amounts), np.int64)


Exact = dict[tuple[int, str], dict[int, tuple[int, int]]]
"""(rank, channel) → row of its file → (waited ns, ns that nobody can tell)."""


def _exact(ranks: Sequence[Source], sampled: Iterable[Waited]) -> Exact:
    row_of = {}
    for source in ranks:
        # a step may be visited twice, but the calls of a visit are written right after its record
        row_of[source.file.rank or 0] = {int(step): row for row, step in enumerate(source.file.steps.step)}
    found: Exact = {}
    for wait in sampled:
        row = row_of[wait.rank].get(wait.step)
        if row is None:
            continue
        cell = found.setdefault((wait.rank, wait.axis), {})
        waited, untold = cell.get(row, (0, 0))
        more = 0 if wait.told else wait.done_ns - wait.ready_ns
        cell[row] = waited + wait.ready_ns - wait.begin_ns, untold + more
    return found


def _turns(numbers: Sequence[int], group: Ints | None, exposed: Sequence[Ints], exact: Exact, channel: str) -> float:
    """Share of what even the last one of a group stood still that was waiting, in sampled steps."""
    common = waited = 0
    for _, members, _ in _groups(numbers, group):
        cells = [exact.get((numbers[index], channel), {}) for index in members]
        for row in set.intersection(*map(set, cells)) if cells else ():
            least = min(range(len(members)), key=lambda m: int(exposed[members[m]][row]))
            common += int(exposed[members[least]][row])
            waited += min(cells[least][row][0], int(exposed[members[least]][row]))
    return waited / common if common else 0.0


@dataclass
class _Comparison:
    """Everything about the steps of one attempt, channel by channel."""

    ranks: Sequence[Source]
    rows: Sequence[Ints]
    """For each rank, which of `held.visits` the rows of its file are."""
    held: Held
    exact: Exact
    divisions: list[Division] = field(init=False)

    def __post_init__(self) -> None:
        self.divisions = [Division.of_nothing(len(source.file.steps)) for source in self.ranks]

    def divide(self, channel: str, group: Ints | None) -> None:
        """Divide what the ranks stood still on a channel; `group` [world] numbers their groups on it."""
        column = CHANNELS.index(channel)
        exposed = [_column(source, comm(channel)) for source in self.ranks]
        if not any(times.any() for times in exposed):
            return
        turns = _turns(self.held.ranks, group, exposed, self.exact, channel)
        for number, members, complete in _groups(self.held.ranks, group):
            culprit, waited = self._compare(column, exposed, members, turns if complete else None)
            self.held.culprit[channel, number], self.held.waited[channel, number] = culprit, waited
            self.held.members[channel, number] = [self.held.ranks[index] for index in members]
        for rank, division, mine in zip(self.held.ranks, self.divisions, exposed, strict=True):
            _take_exact(division, mine, column, self.exact.get((rank, channel), {}))
            if group is None:
                division.untold[~division.exact, column] = 1.0

    def _compare(
        self, column: int, exposed: Sequence[Ints], members: Sequence[int], turns: float | None
    ) -> tuple[Ints, Floats]:
        """One group: everybody against the one that stood still least, who is returned with what others waited.

        `turns` is the share of waiting in what even that one stood still; None if a member's journal is missing, and
        that part can be anything.
        """
        table = np.full((len(members), len(self.held.visits)), NOT_THERE)
        for line, index in enumerate(members):
            table[line, self.rows[index]] = exposed[index]
        common = table.min(axis=0)
        waited = np.zeros(len(common))
        for index in members:
            mine, least = exposed[index].astype(np.float64), common[self.rows[index]]
            more = mine - least
            self.divisions[index].wait[:, column] = _ratio(more + (turns or 0.0) * least, mine)
            if turns is None:
                self.divisions[index].untold[:, column] = _ratio(least, mine)
            waited[self.rows[index]] += more
        all_there = (table < NOT_THERE).all(axis=0)
        return np.where(all_there, np.array(members)[table.argmin(axis=0)], NOBODY_KNOWS), waited


def _ratio(part: Floats | Ints, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)


def _take_exact(division: Division, exposed: Ints, column: int, cells: dict[int, tuple[int, int]]) -> None:
    for row, (waited, untold) in cells.items():
        whole = max(int(exposed[row]), waited + untold, 1)  # a collector's pause inside a wait is not in `exposed`
        division.wait[row, column] = waited / whole
        division.untold[row, column] = untold / whole
        division.exact[row] = True
