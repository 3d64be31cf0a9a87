"""The paid set: for each device, the intervals that somebody pays for. It is the denominator of everything.

It is known before the first span is read, from the scheduler or the bill if there is one, else from what the launcher
declared. An interval that was opened and never closed ends at the last sign of life on its host.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from argosy.journal.reader import Journal, Row
from argosy.ledger.attempts import Source
from argosy.ledger.clocks import RunClock
from argosy.ledger.refusals import Refusals

Ints = NDArray[np.int64]
IMPLIED = "implied"
"""Basis when nobody declared anything: from the process's start to its last sign of life."""


@dataclass(frozen=True)
class Interval:
    t0_ns: int
    t1_ns: int
    state: str
    """allocated, reserved or spare."""
    basis: str
    """self_declared, scheduler, bill or implied."""
    count: int = 1
    """Devices that one row stands for, because all of them did the same: so a simulator writes a large job."""


@dataclass
class PaidDevice:
    """Disjoint paid intervals of one device in order, neighbours merged."""

    name: str
    """HOST/DEVICE"""
    intervals: list[Interval]
    declared: list[Interval] = field(default_factory=list)
    """All that was paid, where `intervals` are the part in a window of time."""

    def __post_init__(self) -> None:
        self.declared = self.declared or self.intervals

    @property
    def count(self) -> int:
        """Devices that it stands for."""
        return self.declared[0].count if self.declared else 1

    @property
    def t0(self) -> Ints:
        return np.array([i.t0_ns for i in self.intervals], np.int64)

    @property
    def t1(self) -> Ints:
        return np.array([i.t1_ns for i in self.intervals], np.int64)

    def within(self, begin_ns: int, end_ns: int) -> "PaidDevice":
        """What of it lies in [begin, end)."""
        clipped = [replace(i, t0_ns=max(i.t0_ns, begin_ns), t1_ns=min(i.t1_ns, end_ns)) for i in self.intervals]
        return PaidDevice(self.name, [i for i in clipped if i.t0_ns < i.t1_ns], self.declared)

    @property
    def paid_ns(self) -> int:
        return self.count * sum(i.t1_ns - i.t0_ns for i in self.intervals)


def paid_devices(
    journal: Journal, clock: RunClock, files: Sequence[Source], as_of_ns: int | None, refusals: Refusals
) -> list[PaidDevice]:
    """The paid set at the cut-off, by device name. Overlapping intervals of one device are refused."""
    signs: dict[str, list[int]] = defaultdict(list)
    for source in files:
        signs[source.file.header["host"]].append(source.alive_ns)
    hosts = {source.device.rpartition("/")[2]: source.file.header["host"] for source in files}
    marks: dict[str, list[tuple[int, int, Row]]] = defaultdict(list)
    outside: dict[str, list[Interval]] = defaultdict(list)
    for number, row in enumerate(journal.paid, start=1):
        needed = ("dev", "ph", "t", "boot_id", "host") if "ph" in row else ("dev", "t0_wall", "t1_wall")
        if missing := [key for key in needed if key not in row]:
            refusals.refuse(f"a paid interval without {', '.join(missing)}", f"paid.jsonl line {number}")
            continue
        device = f"{row.get('host') or hosts.get(row['dev'], '?')}/{row['dev']}"
        state, basis = row.get("state", "allocated"), row.get("basis", "self_declared")
        if "ph" not in row:
            outside[device].append(Interval(row["t0_wall"], row["t1_wall"], state, basis, row.get("n", 1)))
            continue
        at_ns = row["t"] + clock.offset_ns(row["boot_id"])
        if as_of_ns is None or at_ns < as_of_ns:
            marks[device].append((at_ns, int(row["ph"] == "open"), row))
    implied: dict[str, list[Interval]] = defaultdict(list)
    for source in files:
        if source.file.rank is not None and source.device not in marks and source.device not in outside:
            begin_ns = source.file.header["proc_start"] + source.offset_ns
            implied[source.device].append(Interval(begin_ns, source.alive_ns, "allocated", IMPLIED, source.count))
    declared = {device: _declared(rows, signs[device.rpartition("/")[0]]) for device, rows in marks.items()}
    found = implied | declared | outside  # a scheduler or a bill knows better than the launcher
    return [_device(name, found[name], as_of_ns, refusals) for name in sorted(found)]


def _declared(marks: list[tuple[int, int, Row]], signs: list[int]) -> list[Interval]:
    """Pairs of open and close records; the order of the records in the file does not matter."""
    intervals = []
    opened: tuple[int, Row] | None = None
    ordered = sorted(marks, key=lambda mark: mark[:2])
    for at_ns, opens, row in [*ordered, (max([*signs, ordered[-1][0]]), True, {})]:
        if opened:
            begin_ns, first = opened
            # closed by nobody: the last sign of life before the next opening
            end_ns = at_ns if not opens else max([begin_ns, *(s for s in signs if s <= at_ns)])
            state, basis = first.get("state", "allocated"), first.get("basis", "self_declared")
            intervals.append(Interval(begin_ns, end_ns, state, basis, first.get("n", 1)))
        opened = (at_ns, row) if opens else None
    return intervals


def _device(name: str, intervals: list[Interval], as_of_ns: int | None, refusals: Refusals) -> PaidDevice:
    merged: list[Interval] = []
    for new in sorted(intervals, key=lambda i: (i.t0_ns, i.t1_ns)):
        if new.t1_ns < new.t0_ns:
            refusals.refuse(f"paid interval of {name} ends {new.t0_ns - new.t1_ns} ns before it begins", "paid.jsonl")
            continue
        if as_of_ns is not None:
            new = replace(new, t0_ns=min(new.t0_ns, as_of_ns), t1_ns=min(new.t1_ns, as_of_ns))
        if new.t0_ns == new.t1_ns:
            continue
        if merged and new.t0_ns < merged[-1].t1_ns:
            refusals.refuse(f"paid intervals of {name} overlap by {merged[-1].t1_ns - new.t0_ns} ns", "paid.jsonl")
            continue
        last = merged[-1] if merged else None
        if last and last.t1_ns == new.t0_ns and (last.state, last.basis) == (new.state, new.basis):
            merged[-1] = replace(last, t1_ns=new.t1_ns)
        else:
            merged.append(new)
    return PaidDevice(name, merged)
