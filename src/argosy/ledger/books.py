"""The books of a run: an exact partition of every paid device-nanosecond.

`keep_books` reads nothing but a journal in memory and the report's cut-off; the same journal gives the same books.
The sums of accounts, of phys and of fates equal the paid time, always: books that do not sum are not returned.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.journal.reader import Journal
from argosy.ledger.accounts import FATES, PHYS, account
from argosy.ledger.attempts import Seat, Source, seats, sources
from argosy.ledger.causes import Cause, causes
from argosy.ledger.clocks import RunClock
from argosy.ledger.fate import AT_RISK, DISCARDED, DIVERGED, JUDGED, KEPT, LOST, SKIPPED, Visits, judge
from argosy.ledger.paid import Interval, PaidDevice, paid_devices
from argosy.ledger.partition import partition
from argosy.ledger.postings import Posting, balance, post
from argosy.ledger.refusals import Refusals
from argosy.ledger.segments import Segments
from argosy.ledger.waits import divide_waits
from argosy.ledger.warmup import Warmup

Ints = NDArray[np.int64]

_ACCOUNT_OF = [[account(phys, fate) for fate in FATES] for phys in PHYS]


@dataclass(frozen=True)
class DeviceBooks:
    """One device."""

    paid_ns: int
    count: int
    """Devices that it stands for."""
    intervals: tuple[Interval, ...]
    accounts: dict[str, int]


@dataclass(frozen=True)
class AttemptBooks:
    """One start of the run's processes; with the gap before it, and the last one with the tail after it."""

    attempt: int
    start_ns: int
    """Run time; of the first host. So is `end_ns` of the last."""
    end_ns: int
    world: int
    ended: bool
    """Somebody wrote that it ended."""
    clean: bool
    """It ended as somebody meant it to."""
    end: dict[str, Any]
    """The agent's end record: exit, signal, reason."""
    accounts: dict[str, int]
    phys: dict[str, int]


@dataclass(frozen=True)
class Books:
    """Where the paid time went. Times are integer device-ns, moments are run time in ns since the epoch.

    Accounts, phys and fates hold only what has time in it.
    """

    run: str
    as_of_ns: int
    """Nothing later is in the books."""
    live: bool
    paid_ns: int
    accounts: dict[str, int]
    phys: dict[str, int]
    fates: dict[str, int]
    crosstab: dict[tuple[str, str], int]
    """(phys, fate) → ns."""
    imputed: dict[str, int]
    """account → the part of it that nobody wrote: concluded from silence."""
    estimated: dict[str, int]
    """account → the part of it that was divided by shares of sampled steps or by comparing ranks."""
    overlapped: dict[str, int]
    """phys → time under other spans, in no account."""
    devices: dict[str, DeviceBooks]
    attempts: list[AttemptBooks]
    visits: Visits
    postings: list[Posting]
    warmups: list[Warmup]
    refusals: list[str]
    """Records left out, in tolerant books; otherwise the first one raises."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the books should know: files without header, dropped records."""
    causes: list[Cause] = field(default_factory=list)
    """Who made others wait, doing what; sums to `comm.wait_slow_rank`."""
    slices: list[dict[str, int]] = field(default_factory=list)
    """Accounts cut by time: before the first edge, between two, from the last on."""

    @property
    def restarts(self) -> int:
        """Attempts after the first."""
        return max(len(self.attempts) - 1, 0)

    def visits_by_fate(self) -> dict[str, int]:
        """Number of visits that came to each fate."""
        counts = {FATES[fate]: int((self.visits.fate == fate).sum()) for fate in _WORKED}
        return {name: count for name, count in counts.items() if count or name in _ALWAYS}

    def tokens_by_fate(self) -> dict[str, int]:
        """Loss tokens of the visits that came to each fate."""
        counts = {FATES[fate]: int(self.visits.tokens[self.visits.fate == fate, 0].sum()) for fate in _WORKED}
        return {name: count for name, count in counts.items() if count or name in _ALWAYS}


_ALWAYS = tuple(FATES[fate] for fate in (KEPT, AT_RISK, LOST, DISCARDED, SKIPPED))
_WORKED = (KEPT, AT_RISK, LOST, DISCARDED, SKIPPED, DIVERGED, *JUDGED.values())


def keep_books(
    journal: Journal,
    as_of_ns: int | None = None,
    tolerant: bool = False,
    window_ns: tuple[int, int] | None = None,
    edges_ns: Sequence[int] = (),
    on_device: Callable[[str, Ints], None] | None = None,
) -> Books:
    """Account for everything that was paid until `as_of_ns` (run time; everything there is if None).

    With `window_ns` only what was paid in [from, until) is counted, with the fates of the whole run; the books of
    adjacent windows sum to those of their union. `edges_ns` (run time, ascending) cut the accounts into `slices` that
    sum to the whole. `on_device` is given each device's name and cells [attempts, PHYS, FATES].
    Raises :class:`~argosy.ledger.refusals.Refusal` naming the record for what cannot be true; tolerant books leave it
    out, with its time in `unattributed.torn`, and list it.
    """
    refusals = Refusals(tolerant)
    clock = RunClock(journal)
    ranks, agents = sources(journal, clock, None)
    last_word_ns = max((source.alive_ns for source in (*ranks, *agents)), default=0)
    # A cut-off in the middle finds a run under way, whatever came later; one after the end changes nothing.
    cut_ns = as_of_ns if as_of_ns is not None and as_of_ns < last_word_ns else None
    if cut_ns is not None:
        ranks, agents = sources(journal, clock, cut_ns)
    live = journal.live or cut_ns is not None
    attended = seats(ranks, agents, cut_ns, refusals)
    visits = judge(ranks, agents, as_of_ns=cut_ns, live=live, decisions=journal.decisions)
    devices = paid_devices(journal, clock, (*ranks, *agents), as_of_ns, refusals)
    if window_ns:
        devices = [device.within(*window_ns) for device in devices]
    numbers = sorted({seat.attempt for seat in attended})
    # 16,384 devices and two months are more ns than 64 bits hold; Python's integers hold any
    large = any(device.count > 1 for device in devices)
    by_visit, by_attempt, imputed, estimated, overlapped, by_slice = (
        np.zeros(shape, object if large else np.int64)
        for shape in (
            (len(visits), len(PHYS)),
            (max(len(numbers), 1), len(PHYS), len(FATES)),
            (len(PHYS), len(FATES)),
            (len(PHYS), len(FATES)),
            len(PHYS),
            (len(edges_ns) + 1, len(PHYS), len(FATES)),
        )
    )
    device_books, warmups = {}, []
    waits = {number: divide_waits(mine) for number, mine in _by_attempt(ranks)}
    for device in devices:
        segments = Segments(device, visits, refusals, live=live, as_of_ns=cut_ns, waits=waits)
        segments.lay(attended)
        own = np.zeros(by_visit.shape, np.int64) if large else by_visit
        cells = partition(segments, numbers, own, edges_ns)
        for total, part in (
            (by_attempt, cells.by_attempt),
            (imputed, cells.imputed),
            (estimated, cells.estimated),
            (overlapped, cells.overlapped),
            (by_slice, cells.by_slice),
            *(((by_visit, own),) if large else ()),
        ):
            total += part.astype(object) * device.count if large else part
        if on_device is not None:
            on_device(device.name, cells.by_attempt)
        warmups += segments.warmups
        accounts = {name: device.count * ns for name, ns in _accounts(cells.by_attempt.sum(axis=0)).items()}
        device_books[device.name] = DeviceBooks(device.paid_ns, device.count, tuple(device.intervals), accounts)
    total = by_attempt.sum(axis=0)
    accounts = _accounts(total)
    paid_ns = sum(device.paid_ns for device in devices)
    opened_ns = min((device.intervals[0].t0_ns for device in devices if device.intervals), default=0)
    postings = post(visits, by_visit, accounts, opened_ns)
    books = Books(
        run=journal.run,
        as_of_ns=as_of_ns if as_of_ns is not None else _last_ns(devices, attended),
        live=live,
        paid_ns=paid_ns,
        accounts=accounts,
        phys=_named(PHYS, total.sum(axis=1)),
        fates=_named(FATES, total.sum(axis=0)),
        crosstab={(PHYS[p], FATES[f]): int(total[p, f]) for p, f in np.argwhere(total)},
        imputed=_accounts(imputed),
        estimated=_accounts(estimated),
        overlapped=_named(PHYS, overlapped),
        devices=device_books,
        attempts=[_attempt(number, attended, by_attempt[row]) for row, number in enumerate(numbers)],
        visits=visits,
        postings=postings,
        warmups=warmups,
        refusals=refusals.found,
        notes=_notes(journal),
        causes=causes(ranks, waits, visits, by_visit, accounts.get("comm.wait_slow_rank", 0)),
        slices=[_accounts(cells) for cells in by_slice],
    )
    assert (by_slice.sum(axis=0) == total).all(), "the slices do not sum to the whole"
    assert by_slice.min(initial=0) >= 0, "a cell of a slice is negative"
    _check(books, total)
    return books


def _by_attempt(ranks: Sequence[Source]) -> Iterator[tuple[int, list[Source]]]:
    def attempt(source: Source) -> int:
        return source.file.attempt

    for number, mine in groupby(sorted(ranks, key=attempt), key=attempt):
        yield number, list(mine)


def _accounts(cells: Ints) -> dict[str, int]:
    """[PHYS, FATES] → account → ns."""
    total: dict[str, int] = {}
    for p, f in np.argwhere(cells):
        name = _ACCOUNT_OF[p][f]
        total[name] = total.get(name, 0) + int(cells[p, f])
    return {name: ns for name, ns in sorted(total.items()) if ns}


def _named(names: Sequence[str], times: Ints) -> dict[str, int]:
    return {name: int(ns) for name, ns in zip(names, times, strict=True) if ns}


def _attempt(number: int, attended: Sequence[Seat], cells: Ints) -> AttemptBooks:
    mine = [seat for seat in attended if seat.attempt == number]
    return AttemptBooks(
        attempt=number,
        start_ns=min(seat.start_ns for seat in mine),
        end_ns=max(seat.end_ns for seat in mine),
        world=max(seat.world for seat in mine),
        ended=all(seat.ended for seat in mine),
        clean=all(seat.clean for seat in mine),
        end=next((seat.end for seat in mine if seat.end), {}),
        accounts=_accounts(cells),
        phys=_named(PHYS, cells.sum(axis=1)),
    )


def _last_ns(devices: Sequence[PaidDevice], attended: Sequence[Seat]) -> int:
    ends = [device.intervals[-1].t1_ns for device in devices if device.intervals]
    return max([*ends, *(seat.end_ns for seat in attended)], default=0)


def _notes(journal: Journal) -> list[str]:
    notes = [f"{name}: cannot be read; what it knew is in unattributed.no_telemetry" for name in journal.headless]
    for file in journal.files:
        if dropped := sum(row["n"] for row in file.of_kind("drop")):
            notes.append(f"{file.name}: {dropped} records were dropped while it was written")
        if file.torn_lines:
            notes.append(f"{file.name}: {file.torn_lines} damaged lines")
    return notes


def _check(books: Books, cells: Ints) -> None:
    """The invariants that hold for every journal; a failure is our mistake and must not be printed as a result."""
    sums: Mapping[str, int] = {
        "accounts": sum(books.accounts.values()),
        "phys": sum(books.phys.values()),
        "fates": sum(books.fates.values()),
        "causes": sum(cause.ns for cause in books.causes)
        + books.paid_ns
        - books.accounts.get("comm.wait_slow_rank", 0),
        "devices": sum(sum(device.accounts.values()) for device in books.devices.values()),
    }
    wrong = {name: ns for name, ns in sums.items() if ns != books.paid_ns}
    assert not wrong, f"{wrong} do not sum to the paid {books.paid_ns} ns"
    assert cells.min(initial=0) >= 0, "a cell is negative"
    assert balance(books.postings) == books.accounts, "the entries do not lead to the accounts"
