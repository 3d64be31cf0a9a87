"""What paid time cost: by account, and up to any moment."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

from argosy.journal.reader import Journal
from argosy.ledger.books import Books, keep_books
from argosy.ledger.money import NANOS, PriceList, cost, money_text
from argosy.ledger.paid import Interval


def account_money(
    journal: Journal, books: Books, prices: PriceList, *, tolerant: bool = False
) -> tuple[dict[str, int | None], int | None]:
    """Nanos of each account and of the whole; None where a price is unknown.

    A price that changes while devices are paid cuts the books there: each part is kept by itself and priced flat.
    """
    spans = [interval for device in books.devices.values() for interval in device.intervals]
    if not spans:
        return {}, 0 if prices else None
    begin, end = min(i.t0_ns for i in spans), max(i.t1_ns for i in spans)
    edges = [begin, *(t for t in prices.boundaries() if begin < t < end), end]
    usage: dict[str, dict[Fraction | None, int]] = {name: defaultdict(int) for name in books.accounts}
    for window in pairwise(edges):
        part = books if len(edges) == 2 else keep_books(journal, tolerant=tolerant, window_ns=window)
        for name, device in part.devices.items():
            price = prices.per_ns(name, window[0])
            for account, ns in device.accounts.items():
                usage[account][price] += ns
    return cost(usage)


class CostCurve:
    """Device-ns and money paid for a run until a moment of run time."""

    def __init__(self, devices: Iterable[tuple[str, Iterable[Interval]]], prices: PriceList):
        changes: dict[int, list[tuple[int, Fraction | None]]] = defaultdict(list)
        for name, intervals in devices:
            for interval in intervals:
                cuts = [t for t in prices.boundaries() if interval.t0_ns < t < interval.t1_ns]
                for begin, end in pairwise((interval.t0_ns, *cuts, interval.t1_ns)):
                    price = prices.per_ns(name, begin)
                    changes[begin].append((interval.count, price))
                    changes[end].append((-interval.count, price))
        self._edges = sorted(changes)
        # of each edge: device-ns and money until then, and what each ns adds from then on
        self._states: list[tuple[int, Fraction, int, Fraction]] = []
        self._unknown_from: int | None = None
        paid_ns, money, devices_now, price_now, before = 0, Fraction(0), 0, Fraction(0), 0
        for edge in self._edges:
            paid_ns += devices_now * (edge - before)
            money += price_now * (edge - before)
            for more, price in changes[edge]:
                devices_now += more
                price_now += more * (price or 0)
                if price is None and self._unknown_from is None:
                    self._unknown_from = edge
            self._states.append((paid_ns, money, devices_now, price_now))
            before = edge

    def __call__(self, t_ns: int) -> tuple[int, str | None]:
        """Device-ns, and money; None once anything was paid at an unknown price."""
        known = self._unknown_from is None or t_ns <= self._unknown_from
        index = bisect_right(self._edges, t_ns) - 1
        if index < 0:
            return 0, "0" if known else None
        paid_ns, money, devices, price = self._states[index]
        since = t_ns - self._edges[index]
        return paid_ns + devices * since, money_text(round((money + price * since) * NANOS)) if known else None
