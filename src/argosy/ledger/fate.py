"""What became of each visit: kept, at risk, lost, undone on purpose, or skipped.

A *visit* is one execution of a step, (attempt, step, how often before in this attempt); a step number alone would
confuse the run of today with the one that yesterday's crash undid. Visits start at risk. A durable checkpoint keeps
those that it holds; a restore undoes those at and above its step, kept or not. The rules are those of
research/ledger.md 3.4 and INTERFACES 5, and every change is posted with its time and reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.journal.reader import Row
from argosy.journal.schema import LOST_BY_FAILURE
from argosy.ledger.accounts import FATES
from argosy.ledger.attempts import Source

Ints = NDArray[np.int64]

NONE, KEPT, AT_RISK, LOST, DISCARDED, SKIPPED = (
    FATES.index(name) for name in ("none", "kept", "kept_provisional", "lost_failure", "discarded_decision", "skipped")
)


JUDGED = {
    "target_met": FATES.index("surplus"),
    "late_kill": FATES.index("late"),
    "duplicate": FATES.index("duplicate"),
    "unused": FATES.index("unused"),
}
"""What a `decision` record can say of kept work from its step `s` (0 if it has none) on."""
DIVERGED = FATES.index("diverged")


@dataclass(frozen=True)
class Change:
    """Visits that went from one fate to another at a moment."""

    t_ns: int
    visits: Ints
    was: int
    now: int
    why: str


@dataclass
class Visits:
    """All visits of a run in the order of its lineage, one row each."""

    attempt: Ints
    step: Ints
    visit: Ints
    t1_ns: Ints
    """End of the step's window, in run time, on the first rank."""
    tokens: Ints
    """[rows, 3] loss, context and pad tokens of the global batch."""
    fate: Ints
    """Index into FATES."""
    first: NDArray[np.int8]
    """The fate before the first change: at risk or skipped."""
    changes: list[Change] = field(default_factory=list)
    _rows: dict[int, dict[tuple[int, int], int]] = field(default_factory=dict)
    _spans: dict[int, tuple[int, Ints, Ints]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.step)

    def rows_of(self, attempt: int, step: Ints, visit: Ints) -> Ints:
        """The rows of these visits of an attempt."""
        start, steps, visits = self._spans[attempt]
        count = len(step)
        if count <= len(steps) and np.array_equal(steps[:count], step) and np.array_equal(visits[:count], visit):
            return start + np.arange(count)
        if attempt not in self._rows:
            keys = zip(steps.tolist(), visits.tolist(), strict=True)
            self._rows[attempt] = {key: start + row for row, key in enumerate(keys)}
        known = self._rows[attempt]
        return np.array([known[key] for key in zip(step.tolist(), visit.tolist(), strict=True)], np.int64)


def judge(
    ranks: Sequence[Source],
    agents: Sequence[Source],
    *,
    as_of_ns: int | None,
    live: bool,
    decisions: Iterable[Row] = (),
) -> Visits:
    """Follow the lineage of the run up to the cut-off.

    In each attempt the rank whose file goes furthest tells the story; the others add visits that it does not have
    and checkpoints that it did not see committed. Unless the run is `live`, what no checkpoint holds at the end is
    lost, except for a run that declared to keep nothing (`metric_only`).
    """
    lineage = _Lineage()
    parts: list[_Part] = []
    spans = {}
    rows = 0
    decided = [row for row in decisions if as_of_ns is None or row.get("wall", 0) < as_of_ns]
    for attempt in sorted({source.file.attempt for source in (*ranks, *agents)}):
        of_attempt = sorted((source for source in ranks if source.file.attempt == attempt), key=_tells_less)
        part = _Part.of(of_attempt, as_of_ns)
        parts.append(part)
        spans[attempt] = (rows, part.step, part.visit)
        others = [agent for agent in agents if agent.file.attempt == attempt]
        story = [*_events(of_attempt[:1], True), *_events(of_attempt[1:], False), *_events(others, False)]
        if any(event.told and event.row["k"] == "restore" for event in story):
            story = [event for event in story if event.told or event.row["k"] != "restore"]  # the same by other ranks
        story = [event for event in story if as_of_ns is None or event.t_ns < as_of_ns]
        seen: set[tuple[str, str, str]] = set()
        row = 0
        for event in sorted(story, key=lambda event: (event.t_ns, not event.told, event.row["q"])):
            end = part.place(event)
            if end > row:
                lineage.visit(part, row, end, rows)
                row = end
            lineage.take(event, rows + row, seen)
            if event.row["k"] == "decision" and event.row not in decided:
                decided.append(event.row)
        lineage.visit(part, row, len(part.step), rows)
        rows += len(part.step)
    last_ns = max((source.alive_ns for source in (*ranks, *agents)), default=0)
    said = {decision.get("what") for decision in decided}
    if not live and "metric_only" in said:
        lineage.end(last_ns, KEPT, "the run keeps no weights")
    elif not live and "diverged" in said:
        lineage.end(last_ns, DIVERGED, "the run diverged")
    elif not live:
        lineage.end(last_ns, LOST, "no checkpoint holds them")
    for decision in decided:
        what, first = decision.get("what"), decision.get("s", 0)
        if what in JUDGED and type(first) is int:
            lineage.decide(last_ns, first, JUDGED[what], f"decision: {what}")
    return _visits(parts, spans, lineage)


@dataclass
class _Part:
    """The visits of one attempt."""

    attempt: int
    seq: Ints
    step: Ints
    visit: Ints
    t1_ns: Ints
    skipped: NDArray[np.bool_]
    tokens: Ints
    told: int
    """Rows from the leader; those after them are from other ranks."""

    def place(self, event: "_Event") -> int:
        """Before which row an event stands: in the leader's own file by number, else in time."""
        if event.told:
            return int(np.searchsorted(self.seq[: self.told], event.row["q"]))
        row = int(np.searchsorted(self.t1_ns[: self.told], event.t_ns, "right"))
        if event.row["k"] == "ckpt":
            # a checkpoint cannot come before the last step in it; where it seems so, clocks of hosts differ
            last = np.flatnonzero(self.step[: self.told] == event.row["s"] - 1)[:1] + 1
            row = max([row, *last.tolist()])
        return row

    @classmethod
    def of(cls, ranks: Sequence[Source], as_of_ns: int | None) -> "_Part":
        columns: list[tuple[NDArray[Any], ...]] = []
        known: set[tuple[int, int]] = set()
        told = 0
        for source in ranks:
            steps = source.file.steps
            t1_ns = steps.t1 + source.offset_ns
            use = np.ones(len(steps), bool) if as_of_ns is None else t1_ns <= as_of_ns
            if columns:
                if not len(steps) or _covered(columns, steps.step[use], steps.visit[use]):
                    continue
                known = known or _keys(columns[0][1], columns[0][2])
                keys = list(zip(steps.step.tolist(), steps.visit.tolist(), strict=True))
                use &= np.array([key not in known for key in keys], bool)
                known.update(keys)
            else:
                told = int(use.sum())
            columns.append(
                (
                    steps.seq[use],
                    steps.step[use],
                    steps.visit[use],
                    t1_ns[use],
                    steps.skipped[use],
                    steps.tokens[use],
                )
            )
        if not columns:
            none = np.zeros(0, np.int64)
            return cls(0, none, none, none, none, none.astype(bool), np.zeros((0, 3), np.int64), 0)
        seq, step, visit, t1_ns, skipped, tokens = (np.concatenate(column) for column in zip(*columns, strict=True))
        return cls(ranks[0].file.attempt, seq, step, visit, t1_ns, skipped, tokens, told)


def _covered(columns: Sequence[tuple[NDArray[Any], ...]], step: Ints, visit: Ints) -> bool:
    """Whether these visits are a beginning of the leader's: so they are, unless somebody was killed."""
    count = len(step)
    return bool(np.array_equal(columns[0][1][:count], step) and np.array_equal(columns[0][2][:count], visit))


def _keys(step: Ints, visit: Ints) -> set[tuple[int, int]]:
    return set(zip(step.tolist(), visit.tolist(), strict=True))


@dataclass(frozen=True)
class _Event:
    t_ns: int
    row: Row
    told: bool
    """By the attempt's leader, so that its number orders it among the visits."""


def _tells_less(source: Source) -> tuple[int, int]:
    """Sorts the file that goes furthest first."""
    return -int(source.file.steps.t1.max(initial=0) + source.offset_ns), source.file.rank or 0


def _events(files: Sequence[Source], told: bool) -> Iterator[_Event]:
    for source in files:
        for row in source.file.events:
            if row.get("k") in ("ckpt", "restore", "decision") and "t" in row:
                yield _Event(row["t"] + source.offset_ns, row, told)


class _Lineage:
    """The line of visits that the current state is made of."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        none = np.zeros(0, np.int64)
        self._step = {KEPT: none, AT_RISK: none}
        self._rows = {KEPT: none, AT_RISK: none}
        self._new: list[tuple[Ints, Ints]] = []
        self._top = -1  # highest step of the line
        self._begun: dict[str, int] = {}  # rows that existed when a checkpoint was begun

    def visit(self, part: _Part, begin: int, end: int, base: int) -> None:
        """Rows [begin, end) of an attempt join the line."""
        step = part.step[begin:end]
        breaks = np.flatnonzero(np.diff(step) <= 0) + 1
        for stretch in np.split(np.arange(begin, end), breaks):
            if not len(stretch):
                continue
            first = int(part.step[stretch[0]])
            if first <= self._top:
                # a step that is in the line is done again: it was undone, though nobody wrote so
                self.restore(int(part.t1_ns[stretch[0]]), first, LOST, f"repeated from step {first}")
            self._top = int(part.step[stretch[-1]])
            stretch = stretch[~part.skipped[stretch]]
            self._new.append((part.step[stretch], base + stretch))

    def take(self, event: _Event, row: int, seen: set[tuple[str, str, str]]) -> None:
        """A checkpoint or a restore, unless another rank has said the same."""
        fields = event.row
        if fields["k"] == "restore":
            fate = LOST if fields.get("why") in LOST_BY_FAILURE else DISCARDED
            self.restore(event.t_ns, fields["to"], fate, f"restore to {fields['to']}: {fields.get('why')}")
        elif fields["k"] == "ckpt":
            key = (fields["id"], fields["ph"], fields.get("tier", ""))
            if key in seen and not event.told:
                return
            seen.add(key)
            if fields["ph"] == "start" and event.told:
                self._begun[fields["id"]] = row
            elif fields["ph"] == "committed" and fields.get("tier") == "storage":
                begun = self._begun.get(fields["id"], row)
                self.commit(event.t_ns, fields["s"], begun, f"checkpoint {fields['id']}")

    def commit(self, t_ns: int, updates: int, begun: int, why: str) -> None:
        """A durable checkpoint of `updates` updates holds the visits of the line that existed when it was begun."""
        self._flush()
        step, rows = self._step[AT_RISK], self._rows[AT_RISK]
        held = (step < updates) & (rows < begun)
        self._move(t_ns, held, AT_RISK, KEPT, why)
        self._step[KEPT] = np.concatenate((self._step[KEPT], step[held]))
        self._rows[KEPT] = np.concatenate((self._rows[KEPT], rows[held]))

    def restore(self, t_ns: int, to: int, fate: int, why: str) -> None:
        """The state of `to` updates again: visits at and above leave the line."""
        self._flush()
        for was in (KEPT, AT_RISK):
            self._move(t_ns, self._step[was] >= to, was, fate, why)
        self._top = to - 1

    def end(self, t_ns: int, fate: int, why: str) -> None:
        """Nothing comes any more."""
        self._flush()
        self._move(t_ns, np.ones(len(self._step[AT_RISK]), bool), AT_RISK, fate, why)

    def decide(self, t_ns: int, first: int, fate: int, why: str) -> None:
        """Somebody judged the work of the line from step `first` on."""
        self._flush()
        for was in (KEPT, AT_RISK):
            self._move(t_ns, self._step[was] >= first, was, fate, why)

    def _move(self, t_ns: int, which: NDArray[np.bool_], was: int, now: int, why: str) -> None:
        if which.any():
            self.changes.append(Change(t_ns, self._rows[was][which], was, now, why))
            self._step[was], self._rows[was] = self._step[was][~which], self._rows[was][~which]

    def _flush(self) -> None:
        if self._new:
            steps, rows = zip(*self._new, strict=True)
            self._step[AT_RISK] = np.concatenate((self._step[AT_RISK], *steps))
            self._rows[AT_RISK] = np.concatenate((self._rows[AT_RISK], *rows))
            self._new.clear()


def _visits(parts: Sequence[_Part], spans: dict[int, tuple[int, Ints, Ints]], lineage: _Lineage) -> Visits:
    parts = parts or [_Part.of((), None)]
    skipped = np.concatenate([part.skipped for part in parts])
    first = np.where(skipped, SKIPPED, AT_RISK)
    fate = first.copy()
    for change in lineage.changes:
        fate[change.visits] = change.now
    return Visits(
        attempt=np.concatenate([np.full(len(part.step), part.attempt, np.int64) for part in parts]),
        step=np.concatenate([part.step for part in parts]),
        visit=np.concatenate([part.visit for part in parts]),
        t1_ns=np.concatenate([part.t1_ns for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
        fate=fate,
        first=first.astype(np.int8),
        changes=lineage.changes,
        _spans=spans,
    )
