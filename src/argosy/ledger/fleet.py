"""Several runs of a folder, joined by device: every paid device-second is in one run, or idle.

What was paid is the bill if the folder has one (`ROOT/paid.jsonl`, rows as in a run's), else what the runs themselves
declared. Of a device that is on the bill, time in which no run held it is `decision.idle_reservation`, and time that a
run declares beyond the bill was not paid and is in no account. Two runs on one device at one time are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from argosy.errors import ArgosyError, InputError
from argosy.journal.reader import Journal, Row, read_rows, read_run
from argosy.ledger.attempts import sources
from argosy.ledger.clocks import RunClock
from argosy.ledger.money import PriceList, cost, money_text
from argosy.ledger.paid import Interval, paid_devices
from argosy.ledger.refusals import Refusals
from argosy.ledger.report import build_report
from argosy.ledger.report_model import Line, Report
from argosy.ledger.segments import CLOCK_ERROR_NS
from argosy.registry.run_folder import RunFolder, find_runs

IDLE = "decision.idle_reservation"
UNREAD = "unattributed.torn"
"""Account of time that a run held whose books cannot be kept."""

Paid = dict[str, list[Interval]]
"""Device → disjoint intervals in order."""


@dataclass(frozen=True)
class DeviceRow:
    """One device: what was paid for it, and what of that no run held."""

    name: str
    paid_ns: int
    idle_ns: int
    runs: int


@dataclass(frozen=True)
class Member:
    """One run: its report on what the bill says was paid for it, or why its books cannot be kept."""

    run: RunFolder
    report: Report | None = None
    error: str | None = None


@dataclass(frozen=True)
class Fleet:
    """The runs of a folder and what they were paid for together; times are device-ns, unknown money is None."""

    members: list[Member]
    """Oldest first."""
    devices: list[DeviceRow]
    paid_ns: int
    money: str | None
    currency: str | None
    accounts: dict[str, Line]
    """Over all runs and idle time; they sum to `paid_ns`, and their money to `money`."""
    refusals: list[str] = field(default_factory=list)


def join_runs(root: Path, *, tolerant: bool = False) -> Fleet:
    """Join the runs directly in `root`.

    Raises InputError when there is none, when two held one device at once, or when prices are in two currencies;
    `tolerant` gives such time to the run that began first and lists it.
    """
    if not root.is_dir():
        raise InputError("no such folder", where=str(root), do="name the folder of a run, or a folder of runs")
    runs = find_runs(root)
    if not runs:
        raise InputError(
            "is neither a run nor a folder of runs", where=str(root), do="`argosy train RECIPE` makes a run"
        )
    refusals = Refusals(tolerant)
    bill = _bill(root, refusals)
    declared: dict[int, Paid] = {}
    errors: dict[int, str] = {}
    for number, run in enumerate(runs):
        try:
            declared[number] = _declared(run, tolerant)
        except ArgosyError as error:  # one damaged run must not hide the others
            errors[number] = str(error)
    held = _divide(declared, bill, {number: runs[number].path.name for number in declared}, refusals)
    members = []
    for number, run in enumerate(runs):
        if number in errors:
            members.append(Member(run, error=errors[number]))
            continue
        rows = None if held[number] == declared[number] else _rows(held[number])
        try:
            members.append(Member(run, build_report(run.path, tolerant=tolerant, paid=rows)))
        except ArgosyError as error:
            members.append(Member(run, error=str(error)))
    return _fleet(root, members, held, bill, refusals)


def _bill(root: Path, refusals: Refusals) -> Paid:
    journal = Journal(root, root.name, [], [], paid=read_rows(root / "paid.jsonl"), prices=[], beats={})
    return {d.name: d.intervals for d in paid_devices(journal, RunClock(journal), (), None, refusals)}


def _declared(run: RunFolder, tolerant: bool) -> Paid:
    journal = read_run(run.path)
    clock = RunClock(journal)
    ranks, agents = sources(journal, clock, None)
    devices = paid_devices(journal, clock, (*ranks, *agents), None, Refusals(tolerant))
    return {device.name: device.intervals for device in devices}


def _divide(declared: Mapping[int, Paid], bill: Paid, names: Mapping[int, str], refusals: Refusals) -> dict[int, Paid]:
    """What each run held of what was paid. On a device, of two runs at once the one that began first has the time.

    An overlap within the error of a process's start (:data:`CLOCK_ERROR_NS`) is no fault: the later begins later.
    """
    held: dict[int, Paid] = {number: {name: [] for name in paid} for number, paid in declared.items()}
    for device in sorted({name for paid in declared.values() for name in paid}):
        claims = [(i, number) for number, paid in declared.items() for i in paid.get(device, [])]
        taken_ns, taken_by = 0, -1
        for interval, number in sorted(claims, key=lambda claim: (claim[0].t0_ns, claim[1])):
            begin_ns = interval.t0_ns
            if begin_ns < taken_ns:
                if number != taken_by and taken_ns - begin_ns > CLOCK_ERROR_NS:
                    both = min(taken_ns, interval.t1_ns) - begin_ns
                    what = f"{names[taken_by]} and {names[number]} both hold {device} for {both / 1e9:,.1f} s"
                    refusals.refuse(what, str(names[number]))
                begin_ns = min(taken_ns, interval.t1_ns)
            if interval.t1_ns > taken_ns:
                taken_ns, taken_by = interval.t1_ns, number
            parts = [replace(interval, t0_ns=begin_ns)] if begin_ns < interval.t1_ns else []
            if device in bill:
                parts = [cut for part in parts for cut in _within(part, bill[device])]
            held[number][device] += parts
    return held


def _within(part: Interval, bill: Sequence[Interval]) -> list[Interval]:
    """The parts of `part` that the bill knows, on its word."""
    cuts = [replace(part, t0_ns=max(part.t0_ns, b.t0_ns), t1_ns=min(part.t1_ns, b.t1_ns), basis=b.basis) for b in bill]
    return [cut for cut in cuts if cut.t0_ns < cut.t1_ns]


def _rows(paid: Paid) -> list[Row]:
    """Intervals as rows of a paid file, for a report on them; an empty one says that a device was not paid at all."""
    rows = []
    for name, intervals in paid.items():
        host, _, device = name.rpartition("/")
        for i in intervals or [Interval(0, 0, "allocated", "bill")]:
            stamps = {"t0_wall": i.t0_ns, "t1_wall": i.t1_ns, "n": i.count}
            rows.append({"host": host, "dev": device, **stamps, "state": i.state, "basis": i.basis})
    return rows


def _idle(bill: Sequence[Interval], held: Sequence[Interval]) -> list[Interval]:
    """What of the bill is in none of the disjoint intervals `held`."""
    idle = []
    for interval in bill:
        begin_ns = interval.t0_ns
        for inside in sorted(_within(interval, held), key=lambda i: i.t0_ns):
            idle.append(replace(interval, t0_ns=begin_ns, t1_ns=inside.t0_ns))
            begin_ns = inside.t1_ns
        idle.append(replace(interval, t0_ns=begin_ns))
    return [i for i in idle if i.t0_ns < i.t1_ns]


def _fleet(root: Path, members: list[Member], held: Mapping[int, Paid], bill: Paid, refusals: Refusals) -> Fleet:
    reports = [member.report for member in members if member.report]
    prices = PriceList.from_records(_prices(root, members), where=str(root / "price.jsonl"))
    names = sorted({*bill, *(name for paid in held.values() for name in paid)})
    in_use = {name: [i for paid in held.values() for i in paid.get(name, [])] for name in names}
    idle = {name: _idle(bill.get(name, []), in_use[name]) for name in names}
    unread = {
        name: [i for number, paid in held.items() if not members[number].report for i in paid.get(name, [])]
        for name in names
    }
    times, nanos = _sums(reports)
    for account, without in ((IDLE, idle), (UNREAD, unread)):
        usage = _by_price(without, prices)
        if usage:
            times[account] = times.get(account, 0) + sum(usage.values())
            nanos[account] = _plus(nanos.get(account, 0), cost({account: usage})[1])
    paid_ns = sum(times.values())
    money = None if None in nanos.values() else sum(value for value in nanos.values() if value is not None)
    devices = [
        DeviceRow(
            name,
            paid_ns=_length(bill[name] if name in bill else in_use[name]),
            idle_ns=_length(idle[name]),
            runs=sum(1 for paid in held.values() if paid.get(name)),
        )
        for name in names
    ]
    assert sum(device.paid_ns for device in devices) == paid_ns, "runs and idle time do not sum to what was paid"
    return Fleet(
        members=members,
        devices=devices,
        paid_ns=paid_ns,
        money=money_text(money) if times else None,
        currency=prices.currency,
        accounts={name: Line(ns, ns / paid_ns, money_text(nanos[name])) for name, ns in sorted(times.items())},
        refusals=refusals.found,
    )


def _by_price(paid: Paid, prices: PriceList) -> dict[Fraction | None, int]:
    usage: dict[Fraction | None, int] = {}
    for device, intervals in paid.items():
        for interval in intervals:
            for price, ns in prices.split(device, interval.t0_ns, interval.t1_ns).items():
                usage[price] = usage.get(price, 0) + ns * interval.count
    return usage


def _prices(root: Path, members: Sequence[Member]) -> list[dict[str, Any]]:
    """The folder's prices; without any, the newest run's that has some. Each run keeps its own for its own time."""
    rows = read_rows(root / "price.jsonl")
    of_runs = [row for member in members for row in read_rows(member.run.price_file)]
    foreign = {row.get("currency") for row in [*rows, *of_runs]}
    if len(foreign) > 1:
        raise InputError(
            f"runs are priced in {', '.join(sorted(map(str, foreign)))}",
            where=str(root),
            do="put runs of different currencies into different folders",
        )
    return rows or next((found for member in reversed(members) if (found := read_rows(member.run.price_file))), [])


def _sums(reports: Sequence[Report]) -> tuple[dict[str, int], dict[str, int | None]]:
    times: dict[str, int] = {}
    nanos: dict[str, int | None] = {}
    for report in reports:
        for name, line in report.accounts.items():
            times[name] = times.get(name, 0) + line.ns
            own = None if line.money is None else int(Fraction(line.money) * 10**9)
            nanos[name] = _plus(nanos.get(name, 0), own)
    return times, nanos


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _length(intervals: Sequence[Interval]) -> int:
    return sum((i.t1_ns - i.t0_ns) * i.count for i in intervals)
