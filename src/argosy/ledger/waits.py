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
from numpy.typing import NDArray

from argosy.journal.phys import AXES, comm
from argosy.ledger.accounts import PHYS
from argosy.ledger.attempts import Source
from argosy.ledger.groups import group_of_ranks
from argosy.ledger.join import Waited, join

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CHANNELS = (*AXES, "control")
EXPOSED = [PHYS.index(comm(channel)) for channel in CHANNELS]


@dataclass
class Division:
    """Of one rank's exposed communication, by row of its file: shares that were waiting, and that nobody can tell.

    [rows, CHANNELS], 0 to 1; the rest is transfer.
    """

    wait: Floats
    untold: Floats
    exact: NDArray[np.bool_]
    """[rows] from this step's own stamps."""


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


def divide_waits(files: Iterable[Source]) -> Waits:
    """Divide the exposed communication of one attempt's rank files."""
    ranks = sorted(files, key=lambda source: source.file.rank or 0)
    world = max(source.file.header["world"] for source in ranks)
    visits, rows = _common_visits(ranks)
    count = len(visits)
    numbers = [source.file.rank or 0 for source in ranks]
    sampled, offsets = join(ranks)
    exact = _exact(ranks, sampled)
    divisions = [
        Division(
            np.zeros((len(source.file.steps), len(CHANNELS))),
            np.zeros((len(source.file.steps), len(CHANNELS))),
            np.zeros(len(source.file.steps), bool),
        )
        for source in ranks
    ]
    held = Held(numbers, visits, {}, {}, {}, sampled)
    for column, channel in enumerate(CHANNELS):
        exposed = [_column(source, comm(channel)) for source in ranks]
        if not any(times.any() for times in exposed):
            continue
        group = group_of_ranks(ranks[0].file.header.get("layout") or {}, world, channel)
        turns = _turns(numbers, group, exposed, exact, channel)
        for number, members, complete in _groups(numbers, group):
            _compare(members, complete, turns, column, channel, number, count, rows, exposed, divisions, held)
        for index, source in enumerate(ranks):
            _take_exact(divisions[index], exposed[index], column, exact.get((source.file.rank or 0, channel), {}))
            if group is None:
                divisions[index].untold[~divisions[index].exact, column] = 1.0
    spans, span_waits = _spans(ranks, world)
    return Waits(
        steps=dict(zip(numbers, divisions, strict=True)),
        spans=spans,
        span_waits=span_waits,
        held=held,
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


def _compare(
    members: Sequence[int],
    complete: bool,
    turns: float,
    column: int,
    channel: str,
    number: int,
    count: int,
    rows: Sequence[Ints],
    exposed: Sequence[Ints],
    divisions: Sequence[Division],
    held: Held,
) -> None:
    """Unsampled steps of one group: everybody against the one that stood still least."""
    table = np.full((len(members), count), np.iinfo(np.int64).max)
    for line, index in enumerate(members):
        table[line, rows[index]] = exposed[index]
    last = table.argmin(axis=0)
    common = table.min(axis=0)
    waited = np.zeros(count)
    for index in members:
        mine = exposed[index].astype(np.float64)
        least = common[rows[index]]
        more = mine - least
        of_common = turns * least if complete else np.zeros(len(mine))
        share = np.divide(more + of_common, mine, out=np.zeros(len(mine)), where=mine > 0)
        divisions[index].wait[:, column] = share
        if not complete:
            divisions[index].untold[:, column] = np.divide(least, mine, out=np.zeros(len(mine)), where=mine > 0)
        waited[rows[index]] += more
    seen = (table < np.iinfo(np.int64).max).sum(axis=0)
    held.culprit[channel, number] = np.where(seen == len(members), np.array(members)[last], NOBODY_KNOWS)
    held.waited[channel, number] = waited
    held.members[channel, number] = [held.ranks[index] for index in members]


def _take_exact(division: Division, exposed: Ints, column: int, cells: dict[int, tuple[int, int]]) -> None:
    for row, (waited, untold) in cells.items():
        whole = max(int(exposed[row]), waited + untold, 1)  # a collector's pause inside a wait is not in `exposed`
        division.wait[row, column] = waited / whole
        division.untold[row, column] = untold / whole
        division.exact[row] = True


def _spans(ranks: Sequence[Source], world: int) -> tuple[dict[int, Division], dict[tuple[int | None, str], int]]:
    """Evaluations, saves and start-up phases: the n-th of a name on one rank is the n-th on all."""
    least: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    keys: dict[int, list[tuple[str, int]]] = {}
    for source in ranks:
        spans, rank = source.file.spans, source.file.rank or 0
        order: dict[str, int] = {}
        nth: dict[int, tuple[str, int]] = {}
        for row in range(len(spans)):
            name = spans.names[spans.phys[row]]
            nth[row] = name, order.get(name, 0)
            order[name] = order.get(name, 0) + 1
        keys[rank] = [nth[int(row)] for row in spans.nested_rows]
        for line, key in enumerate(keys[rank]):
            for column, channel in enumerate(CHANNELS):
                least.setdefault((*key, column), []).append((_nested(source, line, comm(channel)), rank))
    divisions: dict[int, Division] = {}
    waited: dict[tuple[int | None, str], int] = {}
    for source in ranks:
        rank = source.file.rank or 0
        lines = keys[rank]
        division = Division(
            np.zeros((len(lines), len(CHANNELS))), np.zeros((len(lines), len(CHANNELS))), np.zeros(len(lines), bool)
        )
        for line, key in enumerate(lines):
            for column, channel in enumerate(CHANNELS):
                mine = _nested(source, line, comm(channel))
                everybody = least[(*key, column)]
                if not mine:
                    continue
                if len(everybody) < world:
                    division.untold[line, column] = 1.0  # one that was killed in it, or has no nested phase
                    continue
                common, last = min(everybody)
                division.wait[line, column] = (mine - common) / mine
                if channel != "pp":
                    waited[last, key[0]] = waited.get((last, key[0]), 0) + mine - common
        divisions[rank] = division
    return divisions, waited


def _nested(source: Source, line: int, name: str) -> int:
    names, nested = source.file.phys, source.file.spans.nested
    position = names.index(name) if name in names else nested.shape[1]
    return int(nested[line, position]) if position < nested.shape[1] else 0
