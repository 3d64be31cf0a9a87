"""Books from `compact/`: the sums of the Parquet tables, and the story of the steps from one rank's journal."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from argosy.journal.reader import Journal
from argosy.ledger.accounts import account
from argosy.ledger.attempts import seats, sources
from argosy.ledger.books import AttemptBooks, Books, DeviceBooks
from argosy.ledger.causes import Cause
from argosy.ledger.clocks import RunClock
from argosy.ledger.compact import Compact
from argosy.ledger.fate import judge
from argosy.ledger.paid import paid_devices
from argosy.ledger.refusals import Refusals

Sums = dict[str, int]


def compact_books(found: Compact, journal: Journal) -> Books:
    """The books of a run that is over; `journal` has one rank's file for each attempt, and the launcher's.

    They have no postings and no log of warm-ups: these are in the books that are kept from the journal.
    """
    refusals = Refusals(tolerant=False)
    clock = RunClock(journal)
    ranks, agents = sources(journal, clock, None)
    paid = {d.name: d for d in paid_devices(journal, clock, (*ranks, *agents), None, refusals)}
    by_device: dict[str, Sums] = defaultdict(lambda: defaultdict(int))
    by_attempt: dict[int, tuple[Sums, Sums]] = defaultdict(lambda: (defaultdict(int), defaultdict(int)))
    crosstab: dict[tuple[str, str], int] = defaultdict(int)
    for device, attempt, phys, fate, ns in found.cells():
        count = paid[device].count if device in paid else 1
        name, all_ns = account(phys, fate), ns * count
        by_device[device][name] += all_ns
        by_attempt[attempt][0][name] += all_ns
        by_attempt[attempt][1][phys] += all_ns
        crosstab[phys, fate] += all_ns
    devices = {}
    for name, in_accounts in by_device.items():
        count, intervals = (paid[name].count, tuple(paid[name].intervals)) if name in paid else (1, ())
        devices[name] = DeviceBooks(sum(in_accounts.values()), count, intervals, dict(in_accounts))
    accounts = _total(by_device)
    books = Books(
        run=journal.run,
        as_of_ns=found.small["as_of_ns"],
        live=False,
        paid_ns=sum(device.paid_ns for device in devices.values()),
        accounts=accounts,
        phys=_margin(crosstab, 0),
        fates=_margin(crosstab, 1),
        crosstab=dict(crosstab),
        imputed=found.small["imputed"],
        estimated=found.small["estimated"],
        overlapped=found.small["overlapped"],
        devices=devices,
        attempts=[],
        visits=judge(ranks, agents, as_of_ns=None, live=False, decisions=journal.decisions),
        postings=[],
        warmups=[],
        refusals=[],
        notes=[*found.small["notes"], f"from {found.folder}; tables of ranks and modules are of the first rank alone"],
        causes=[Cause(**cause) for cause in found.small["causes"]],
        slices=found.small["slices"],
    )
    attended = seats(ranks, agents, None, refusals)
    rows = []
    for number in sorted(by_attempt):
        mine = [seat for seat in attended if seat.attempt == number]
        in_accounts, in_phys = by_attempt[number]
        rows.append(
            AttemptBooks(
                attempt=number,
                start_ns=min(seat.start_ns for seat in mine),
                end_ns=max(seat.end_ns for seat in mine),
                world=max(seat.world for seat in mine),
                ended=all(seat.ended for seat in mine),
                clean=all(seat.clean for seat in mine),
                end=next((seat.end for seat in mine if seat.end), {}),
                accounts=dict(in_accounts),
                phys=dict(in_phys),
            )
        )
    assert sum(accounts.values()) == books.paid_ns, "the tables do not sum to what was paid"
    return replace(books, attempts=rows)


def _total(by_device: Mapping[str, Sums]) -> Sums:
    total: Sums = defaultdict(int)
    for accounts in by_device.values():
        for name, ns in accounts.items():
            total[name] += ns
    return dict(sorted(total.items()))


def _margin(crosstab: Mapping[tuple[str, str], int], side: int) -> Sums:
    total: Sums = defaultdict(int)
    for pair, ns in crosstab.items():
        total[pair[side]] += ns
    return dict(total)
