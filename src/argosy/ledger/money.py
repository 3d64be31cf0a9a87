"""Money of paid time, exact: a rational price times integer nanoseconds, rounded once.

The unit of account is the *nano*, 1e-9 of one currency unit. Parts are rounded by largest remainder,
so they sum to the rounded total to the last nano (INTERFACES 9). A price that nobody stated is
``None`` and so is every sum it touches; a price of 0 means free. These are different things.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TypeVar

from argosy.errors import InputError

NANOS = 10**9
NS_PER = {"second": 10**9, "minute": 60 * 10**9, "hour": 3600 * 10**9, "day": 86_400 * 10**9}
ANY_DEVICE = "*"

Key = TypeVar("Key", bound=Hashable)


def largest_remainder(parts: Mapping[Key, Fraction]) -> dict[Key, int]:
    """Round non-negative `parts` to integers whose sum is the rounded sum of the parts (half to even).

    Each part is off by less than one. Equal remainders go to the earlier key, so the result does not
    depend on anything but the order given.
    """
    floors = {key: math.floor(part) for key, part in parts.items()}
    missing = round(sum(parts.values(), Fraction(0))) - sum(floors.values())
    by_remainder = sorted(parts, key=lambda key: floors[key] - parts[key])
    return floors | {key: floors[key] + 1 for key in by_remainder[:missing]}


def shares(parts: Mapping[Key, int], digits: int = 1) -> dict[Key, Fraction]:
    """Percentages with `digits` decimals that sum to exactly 100 (empty parts: all 0)."""
    total = sum(parts.values())
    if not total:
        return dict.fromkeys(parts, Fraction(0))
    unit = 10**digits
    rounded = largest_remainder({key: Fraction(part * 100 * unit, total) for key, part in parts.items()})
    return {key: Fraction(value, unit) for key, value in rounded.items()}


def money_text(nanos: int | None) -> str | None:
    """Nanos as the decimal string of the JSON: all nine decimals, no trailing zeros; None stays None."""
    if nanos is None:
        return None
    whole, rest = divmod(abs(nanos), NANOS)
    decimals = f"{rest:09d}".rstrip("0")
    return f"{'-' if nanos < 0 else ''}{whole}{'.' if decimals else ''}{decimals}"


@dataclass
class PriceList:
    """Prices that are constant between changes in wall time, per device or for all (``*``).

    A row that names a device hides the rows for all devices, whole: mixing the two by time would make
    the price of a device depend on a row that somebody else added.
    """

    currency: str | None = None
    _rows: dict[str, list[tuple[int | None, Fraction]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, object]], where: str = "price.jsonl") -> "PriceList":
        """Read `price` records of the journal; two currencies or a bad row raise :class:`InputError`.

        A record: ``{dev: "*"|name, from_wall: ns|null, amount: "2.49", per: "hour", currency: "USD"}``.
        Of two rows with one device and one start the later replaces the earlier: the file is append-only.
        """
        prices = cls()
        for number, record in enumerate(records, 1):
            place = f"{where}:{number}"
            try:
                amount = Fraction(str(record["amount"]))
                per_ns = amount / NS_PER[str(record["per"])]
                currency = str(record["currency"])
                start = record.get("from_wall")
            except (KeyError, ValueError, ZeroDivisionError) as error:
                raise InputError(
                    f"not a price ({error!r})",
                    where=place,
                    do=f"write amount, currency and per = {' | '.join(NS_PER)}",
                ) from error
            if amount < 0 or not (start is None or isinstance(start, int)):
                raise InputError("a price has an amount of 0 or more and from_wall in ns or null", where=place)
            if prices.currency not in (None, currency):
                raise InputError(
                    f"prices in {prices.currency} and in {currency}", where=place, do="state all prices in one currency"
                )
            prices.currency = currency
            rows = [row for row in prices._rows[str(record.get("dev", ANY_DEVICE))] if row[0] != start]
            rows.append((start, per_ns))
            prices._rows[str(record.get("dev", ANY_DEVICE))] = sorted(rows, key=_start)
        return prices

    def boundaries(self) -> list[int]:
        """Wall times (ns) at which some price changes, ascending."""
        return sorted({start for rows in self._rows.values() for start, _ in rows if start is not None})

    def per_ns(self, device: str, wall_ns: int) -> Fraction | None:
        """Price of one ns of a device (``cuda:0`` or HOST/``cuda:0``) at a wall time, or None where no row says."""
        rows = self._rows.get(device) or self._rows.get(device.rpartition("/")[2]) or self._rows.get(ANY_DEVICE) or []
        index = bisect_right([_start(row) for row in rows], wall_ns)
        return rows[index - 1][1] if index else None

    def split(self, device: str, t0_wall_ns: int, t1_wall_ns: int) -> dict[Fraction | None, int]:
        """The nanoseconds of an interval by price per ns; a price of None is unknown."""
        edges = [t for t in self.boundaries() if t0_wall_ns < t < t1_wall_ns]
        parts: dict[Fraction | None, int] = defaultdict(int)
        for begin, end in pairwise((t0_wall_ns, *edges, t1_wall_ns)):
            parts[self.per_ns(device, begin)] += end - begin
        return dict(parts)

    def describe(self) -> str:
        """The prices in one line."""
        known = {(device, per_ns) for device, rows in self._rows.items() for _, per_ns in rows}
        if not known:
            return "no price is known"
        if len(known) > 1:
            return f"{len(known)} prices in {self.currency}, by device and time"
        ((device, per_ns),) = known
        what = "device" if device == ANY_DEVICE else device
        return f"price {float(per_ns * NS_PER['hour']):g} {self.currency} per {what}-hour"

    def __bool__(self) -> bool:
        return any(self._rows.values())


def _start(row: tuple[int | None, Fraction]) -> float:
    return -math.inf if row[0] is None else row[0]


def cost(usage: Mapping[Key, Mapping[Fraction | None, int]]) -> tuple[dict[Key, int | None], int | None]:
    """Money in nanos of each part and of the total, from ns per price.

    `usage` is part → {price per ns, or None: ns}. A part with time at an unknown price has unknown
    money, and then the total is unknown too. Known parts still sum exactly among themselves.
    """
    known = {
        key: sum((price * ns for price, ns in at.items() if price is not None), Fraction(0)) * NANOS
        for key, at in usage.items()
        if not at.get(None)
    }
    parts: dict[Key, int | None] = dict.fromkeys(usage)
    parts.update(largest_remainder(known))
    complete = len(known) == len(usage)
    return parts, sum(part for part in parts.values() if part is not None) if complete else None
