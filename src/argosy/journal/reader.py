"""Reads a run's journal into columns.

Anything may have been killed at any byte: a line that does not parse is counted and passed over, a file without a
header is reported, kinds and fields that are not known are kept. Nothing is judged here; the ledger judges.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.journal.clock import boot_id, mono_ns
from argosy.journal.heartbeat import Beat, read_beat
from argosy.journal.liveness import is_held
from argosy.journal.phys import PHYS

Row = dict[str, Any]
Ints = NDArray[np.int64]
OPEN = -1  # in Spans.t1


@dataclass
class Steps:
    """The step records of a file in the order of their numbers; one row each."""

    seq: Ints
    step: Ints
    visit: Ints
    t0: Ints
    t1: Ints
    skipped: NDArray[np.bool_]
    amounts: Ints
    """[rows, columns] self times in ns; column i is `phys[i]` of the file's header."""
    tokens: Ints
    """[rows, 3] loss, context and pad tokens of the global batch."""
    loss: NDArray[np.float64]
    """Nats per token; nan where unknown. So are `grad_norm` and `lr`."""
    grad_norm: NDArray[np.float64]
    lr: NDArray[np.float64]
    off_cpu: Ints
    """[rows, 2] time in math phases without a processor, and of it in the queue for one; 0 where nobody watched."""

    def __len__(self) -> int:
        return len(self.seq)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Steps":
        def floats(key: str) -> NDArray[np.float64]:
            return np.array([row.get(key) for row in rows], np.float64)  # None becomes nan

        return cls(
            seq=_column(rows, "q"),
            step=_column(rows, "s"),
            visit=_column(rows, "v"),
            t0=_column(rows, "t0"),
            t1=_column(rows, "t1"),
            skipped=_column(rows, "x").astype(bool),
            amounts=_matrix([row.get("a", ()) for row in rows]),
            tokens=_matrix([row.get("n", ()) for row in rows], 3),
            loss=floats("l"),
            grad_norm=floats("g"),
            lr=floats("r"),
            off_cpu=_matrix([row.get("u", ()) for row in rows], 2),
        )


@dataclass
class Spans:
    """The spans of a file, each once, in the order in which they were opened."""

    seq: Ints
    close_seq: Ints
    """Number of the record that closed it; `seq` again if it was written once."""
    t0: Ints
    t1: Ints
    """`OPEN` where no record says when it ended."""
    depth: Ints
    phys: Ints
    """Index into `names`."""
    names: tuple[str, ...]
    nested_rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Rows that have self times of phases inside..."""
    nested: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """...and these times, columns by the header's `phys`."""

    def __len__(self) -> int:
        return len(self.seq)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Spans":
        merged: dict[int, Row] = {}
        for row in rows:
            known = merged.setdefault(row["id"], row)
            if known is not row:
                merged[row["id"]] = row | {"q": known["q"], "close": row["q"]}
        rows = list(merged.values())
        names: dict[str, int] = {}
        phys = [names.setdefault(row["p"], len(names)) for row in rows]
        nested = [index for index, row in enumerate(rows) if row.get("a")]
        return cls(
            seq=_column(rows, "q"),
            close_seq=np.array([row.get("close", row["q"]) for row in rows], np.int64),
            t0=_column(rows, "t0"),
            t1=np.array([OPEN if row.get("t1") is None else row["t1"] for row in rows], np.int64),
            depth=_column(rows, "d"),
            phys=np.array(phys, np.int64),
            names=tuple(names),
            nested_rows=np.array(nested, np.int64),
            nested=_matrix([rows[index]["a"] for index in nested]),
        )


@dataclass
class JournalFile:
    """One rank's or one agent's file."""

    name: str
    header: Row
    steps: Steps
    spans: Spans
    events: list[Row]
    """All other records in order: ckpt, restore, attempt, eval, data, coll, decision, and kinds not known."""
    first_ns: int
    last_ns: int
    """The latest stamp in the file, on the host's monotonic clock."""
    last_seq: int
    torn_lines: int = 0
    torn_end: bool = False
    """The last line is damaged: the writer was killed inside a write, or the file was cut."""

    @property
    def phys(self) -> tuple[str, ...]:
        return tuple(self.header.get("phys") or PHYS)

    @property
    def attempt(self) -> int:
        return int(self.header["attempt"])

    @property
    def rank(self) -> int | None:
        """None for an agent's file."""
        return self.header["rank"]

    def of_kind(self, kind: str) -> Iterator[Row]:
        """The records of one kind, in order."""
        return (row for row in self.events if row.get("k") == kind)

    @property
    def closed_ns(self) -> int | None:
        """When the writer ended in order."""
        return next((row["t"] for row in self.of_kind("close")), None)


@dataclass
class Journal:
    """Everything that a run has written about its time."""

    path: Path
    run: str
    ranks: list[JournalFile]
    """By attempt and rank."""
    agents: list[JournalFile]
    paid: list[Row]
    prices: list[Row]
    beats: dict[tuple[int, int], Beat]
    """By attempt and rank."""
    live: bool = False
    """A process of this host holds the run's lock."""
    read_at: tuple[str, int] | None = None
    """Boot id and monotonic ns of this moment: if the run is live, its launcher is alive then."""
    headless: list[str] = field(default_factory=list)
    """Files without a readable header, and heartbeat pages that are none; they say nothing."""
    decisions: list[Row] = field(default_factory=list)

    @property
    def files(self) -> list[JournalFile]:
        return [*self.agents, *self.ranks]


def read_run(path: Path, only: Mapping[int, int] | None = None) -> Journal:
    """The journal of the run in folder `path`; with `only` (attempt → rank) of that rank alone.

    Raises InputError if there is none.
    """
    if not (path / "events").is_dir():
        raise InputError("is no run folder: it has no events/", where=str(path), do="name the folder of a run")
    ranks, agents, headless = [], [], []
    for file in sorted((path / "events").glob("attempt-*/*.jsonl")):
        if only is not None and file.name.startswith("rank-"):
            attempt = int(file.parent.name.removeprefix("attempt-"))
            if file.name != f"rank-{only.get(attempt)}.jsonl":
                continue
        content = read_file(file, name=str(file.relative_to(path)))
        if content is None:
            headless.append(str(file.relative_to(path)))
        elif content.rank is None:
            agents.append(content)
        else:
            ranks.append(content)
    ranks.sort(key=lambda file: (file.attempt, file.rank))
    agents.sort(key=lambda file: (file.attempt, file.name))
    beats = []
    for page in sorted((path / "heartbeat").glob("*")):
        try:
            if beat := read_beat(page):
                beats.append(beat)
        except InputError:
            headless.append(str(page.relative_to(path)))
    return Journal(
        path=path,
        run=next((file.header["run"] for file in (*agents, *ranks)), path.name),
        ranks=ranks,
        agents=agents,
        paid=read_rows(path / "paid.jsonl"),
        prices=read_rows(path / "price.jsonl"),
        beats={(beat.attempt, beat.rank): beat for beat in beats},
        live=is_held(path / "lock"),
        read_at=(boot_id(), mono_ns()),
        headless=headless,
        decisions=read_rows(path / "decisions.jsonl"),
    )


def read_rows(file: Path) -> list[Row]:
    """The readable lines of a JSONL file; none if it does not exist."""
    return _parse(file.read_bytes())[0] if file.exists() else []


def read_file(file: Path, name: str = "") -> JournalFile | None:
    """One journal file, or None if its header is damaged or not there yet."""
    rows, torn_lines, torn_end = _parse(file.read_bytes())
    return collect(rows, name or str(file), torn_lines=torn_lines, torn_end=torn_end)


def collect(rows: Iterable[Row], name: str = "", *, torn_lines: int = 0, torn_end: bool = False) -> JournalFile | None:
    """Sort the records of one file into columns; None without a header. Their order does not matter."""
    rows = list(rows)
    ordered = sorted(filter(_is_whole, rows), key=lambda row: row["q"])
    torn_lines += len(rows) - len(ordered)
    header: Row | None = None
    steps, spans, events = [], [], []
    for row in ordered:
        kind = row["k"]
        if kind == "step":
            steps.append(row)
        elif kind == "span":
            spans.append(row)
        elif kind == "header":
            header = header or row
        else:
            events.append(row)
    if header is None:
        return None
    step_columns, bad_steps = _columns(Steps.of, steps)
    span_columns, bad_spans = _columns(Spans.of, spans)
    stamps = [stamp for row in ordered if type(stamp := row.get("t1") or row.get("t") or row.get("t0")) is int]
    return JournalFile(
        name=name,
        header=header,
        steps=step_columns,
        spans=span_columns,
        events=events,
        first_ns=header["t"],
        last_ns=max(stamps, default=header["t"]),
        last_seq=ordered[-1]["q"],
        torn_lines=torn_lines + bad_steps + bad_spans,
        torn_end=torn_end,
    )


_Columns = TypeVar("_Columns")


def _columns(build: Callable[[Sequence[Row]], _Columns], rows: Sequence[Row]) -> tuple[_Columns, int]:
    """Columns of `rows`, and how many had to be left out because a field in them is of another type."""
    if (columns := _built(build, rows)) is not None:
        return columns, 0
    good = [row for row in rows if _built(build, [row]) is not None]
    return build(good), len(rows) - len(good)


def _built(build: Callable[[Sequence[Row]], _Columns], rows: Sequence[Row]) -> _Columns | None:
    """Columns of `rows`, or None if a field is of another type than its kind has; a list makes a column too deep."""
    try:
        columns = build(rows)
    except (TypeError, ValueError, OverflowError):
        return None
    return columns if _depths(columns) == _depths(build([])) else None


def _depths(columns: object) -> list[int]:
    return [value.ndim for value in vars(columns).values() if isinstance(value, np.ndarray)]


_NUMBERS = {
    "header": ("q", "t", "wall", "attempt", "world", "proc_start"),
    "step": ("q", "s", "t0", "t1"),
    "span": ("q", "id", "t0"),
    "ckpt": ("q", "t", "s"),
    "restore": ("q", "t", "to"),
    "attempt": ("q", "t"),
    "close": ("q", "t"),
    "colls": ("q", "s"),
    "line": ("q", "s"),
    "device": ("q", "s", "t"),
}
_NAMES = {
    "header": ("run", "host", "boot_id"),
    "span": ("p",),
    "ckpt": ("id", "ph"),
    "attempt": ("ph",),
}
_NAMES_OR_NOTHING = {
    "header": ("device",),
    "ckpt": ("tier", "why"),
    "restore": ("id", "tier", "why"),
    "attempt": ("reason",),
    "decision": ("what", "reason"),
    "data": ("src",),
}


_PRESENT = {"header": ("rank", "device")}


def _is_whole(row: Row) -> bool:
    """Whether a record has what the ledger needs of its kind; one that has not is as good as damaged."""
    kind = row.get("k")
    if not isinstance(kind, str):
        return False
    return (
        all(type(row.get(key)) is int for key in _NUMBERS.get(kind, ("q",)))
        and all(type(row.get(key)) is str for key in _NAMES.get(kind, ()))
        and all(key in row for key in _PRESENT.get(kind, ()))
        and all(row.get(key) is None or type(row[key]) is str for key in _NAMES_OR_NOTHING.get(kind, ()))
    )


def _parse(content: bytes) -> tuple[list[Row], int, bool]:
    """Rows, number of damaged lines, and whether the last line is one of them."""
    whole, _, tail = content.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    try:
        rows = orjson.loads(b"[%b]" % b",".join(lines))  # one call for a file without damage
        damaged = 0
    except orjson.JSONDecodeError:
        rows, damaged = [], 0
        for line in lines:
            try:
                rows.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                damaged += bool(line)
    good = [row for row in rows if isinstance(row, dict)]
    return good, damaged + len(rows) - len(good) + bool(tail), bool(tail)


def _column(rows: Sequence[Row], key: str) -> Ints:
    return np.array([row.get(key, 0) for row in rows], np.int64)


def _matrix(lists: Sequence[Sequence[int]], width: int | None = None) -> Ints:
    """Rows of different lengths, filled up with zeros."""
    width = max(map(len, lists), default=0) if width is None else width
    return np.array([(*row, *(0,) * (width - len(row))) for row in lists], np.int64).reshape(len(lists), width)
