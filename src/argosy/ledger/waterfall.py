"""The waterfall's rows, from what was paid down to what was useful: the same in the terminal and on the page.

Printed shares sum to 100.0 and printed money to the printed total (largest remainder).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from argosy.ledger.cells import NOT_KNOWN, amount, money_digits
from argosy.ledger.money import largest_remainder, shares
from argosy.ledger.report_model import LAYERS, Line, Report

LAYER_TITLE = {"comm": "communication"}


@dataclass(frozen=True)
class Row:
    """One line. A layer's row comes before those of its accounts, which divide its time."""

    title: str
    layer: str
    """A layer, or ``paid`` for the first row."""
    account: str | None
    """None for the whole and for a layer."""
    line: Line
    share: str
    """Percent, without the sign."""
    money: str
    start_ns: int
    """Where its bar begins on a scale from 0 to what was paid."""


def marks(line: Line) -> str:
    """What is not simply measured in it: ``~`` imputed, ``≈`` estimated."""
    return (" ~" if line.imputed_ns else "") + (" ≈" if line.estimated_ns else "")


def waterfall(report: Report) -> Iterator[Row]:
    """All rows in order; accounts without time are left out."""
    share = shares({name: line.ns for name, line in report.accounts.items()})
    layer_share = _sums_by_layer(share)
    money = _money_column(report)
    whole = Line(report.paid_ns, 1.0, report.money)
    yield Row("paid", "paid", None, whole, "100.0" if report.paid_ns else NOT_KNOWN, money["paid"], 0)
    end_ns = report.paid_ns
    for layer in LAYERS:
        line = report.layers[layer]
        end_ns -= line.ns
        part = f"{float(layer_share.get(layer, 0)):.1f}"
        yield Row(LAYER_TITLE.get(layer, layer), layer, None, line, part, money[layer], end_ns)
        start_ns = end_ns
        for name, account in accounts_of(report, layer):
            title = name.partition(".")[2]
            yield Row(title, layer, name, account, f"{float(share[name]):.1f}", money[name], start_ns)
            start_ns += account.ns


def accounts_of(report: Report, layer: str) -> list[tuple[str, Line]]:
    """The accounts of a layer that have time in them, the largest first."""
    inside = [(name, line) for name, line in report.accounts.items() if name.partition(".")[0] == layer and line.ns]
    return sorted(inside, key=lambda item: (-item[1].ns, item[0]))


def _money_column(report: Report) -> dict[str, str]:
    """Money of paid, layers and accounts at one precision, rounded so that the printed column sums up."""
    known = {name: Fraction(line.money) for name, line in report.accounts.items() if line.money is not None}
    if report.money is None:
        column = {name: amount(line.money) for name, line in (report.accounts | report.layers).items()}
        return column | {"paid": NOT_KNOWN}
    digits = money_digits(Fraction(report.money))
    cents = largest_remainder({name: value * 10**digits for name, value in known.items()})
    by_layer = _sums_by_layer({name: Fraction(value) for name, value in cents.items()})
    whole = {"paid": sum(by_layer.values(), Fraction(0))} | {name: by_layer.get(name, Fraction(0)) for name in LAYERS}
    return {name: f"{float(value) / 10**digits:,.{digits}f}" for name, value in (cents | whole).items()}


def _sums_by_layer(parts: Mapping[str, Fraction]) -> dict[str, Fraction]:
    sums: dict[str, Fraction] = {}
    for name, part in parts.items():
        layer = name.partition(".")[0]
        sums[layer] = sums.get(layer, Fraction(0)) + part
    return sums
