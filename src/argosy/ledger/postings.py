"""The books as double entry: every entry moves time between accounts and none makes or destroys it.

The opening entry takes the paid time into `unattributed.residual`, the second moves what was measured to its accounts
with all visits still at risk, and each checkpoint or restore moves visits from one fate to another. Nothing is ever
overwritten: what turned out otherwise is a later entry that names the ones it reverses.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.ledger.accounts import FATES, PHYS, account
from argosy.ledger.fate import Visits

Ints = NDArray[np.int64]

PAID = "paid"
"""The account outside of the ledger that the opening entry takes from."""
RESIDUAL = "unattributed.residual"


@dataclass(frozen=True)
class Posting:
    """One entry; its legs sum to zero."""

    id: str
    t_ns: int
    """Run time of what caused it."""
    legs: tuple[tuple[str, int], ...]
    """(account, device-ns), by account."""
    why: str
    reverses: tuple[str, ...] = ()
    """Entries that had put these visits where they no longer are."""


def post(visits: Visits, by_visit: Ints, final: Mapping[str, int], opened_ns: int) -> list[Posting]:
    """The entries that lead from nothing to `final` (account → device-ns).

    `by_visit` [visits, PHYS] is the time that each visit's windows held, over all devices.
    """
    changes = [
        _legs(by_visit[change.visits].sum(axis=0), FATES[change.was], FATES[change.now]) for change in visits.changes
    ]
    measured = Counter(final)
    for legs in changes:
        measured.subtract(legs)
    paid_ns = sum(final.values())
    postings = [
        Posting("p0", opened_ns, _sorted({PAID: -paid_ns, RESIDUAL: paid_ns}), "paid"),
        Posting("p1", opened_ns, _sorted(_plus(measured, {RESIDUAL: -paid_ns})), "measured; all visits at risk"),
    ]
    last = np.ones(len(visits), np.int64)  # the entry that put each visit where it is
    for number, (change, legs) in enumerate(zip(visits.changes, changes, strict=True), start=len(postings)):
        reversed_ids = tuple(f"p{entry}" for entry in np.unique(last[change.visits]) if entry > 1)
        postings.append(Posting(f"p{number}", change.t_ns, _sorted(legs), change.why, reversed_ids))
        last[change.visits] = number
    return postings


def balance(postings: list[Posting]) -> dict[str, int]:
    """What the entries add up to, without the outside account and without accounts at zero."""
    total: Counter[str] = Counter()
    for posting in postings:
        total.update(dict(posting.legs))
    return {name: ns for name, ns in sorted(total.items()) if ns and name != PAID}


def _legs(times: Ints, was: str, now: str) -> Counter[str]:
    legs: Counter[str] = Counter()
    for phys, ns in zip(PHYS, times.tolist(), strict=True):
        if ns:
            legs[account(phys, was)] -= ns
            legs[account(phys, now)] += ns
    return legs


def _plus(a: Mapping[str, int], b: Mapping[str, int]) -> Counter[str]:
    total = Counter(a)
    total.update(b)
    return total


def _sorted(legs: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple((name, ns) for name, ns in sorted(legs.items()) if ns)
