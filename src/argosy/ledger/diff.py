"""Two runs compared in seconds per kept token: what each account costs one more or less than the other.

Per kept token, because a run that is longer is not worse. The differences of the accounts sum to the difference of the
whole exactly: they are fractions until they are printed.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from argosy.errors import InputError
from argosy.ledger.report_model import LAYERS, Report

SCHEMA = "argosy.diff/1"
PER = 10**6
"""Tokens in a unit of the figures."""


@dataclass(frozen=True)
class DiffRow:
    """One account, device-seconds per million kept tokens."""

    account: str
    a: Fraction
    b: Fraction

    @property
    def more(self) -> Fraction:
        """What B takes more than A."""
        return self.b - self.a


@dataclass(frozen=True)
class Diff:
    a: str
    b: str
    rows: list[DiffRow]
    """Accounts with time in either, the largest difference first."""
    whole: DiffRow

    def to_json(self) -> dict[str, Any]:
        """Exact fractions as text beside their decimals."""

        def row(found: DiffRow) -> dict[str, Any]:
            numbers = {"a": found.a, "b": found.b, "more": found.more}
            exact = {f"{name}_exact": str(value) for name, value in numbers.items()}
            return {"account": found.account} | {name: float(value) for name, value in numbers.items()} | exact

        unit = f"device-seconds per {PER} kept tokens"
        rows = [row(found) for found in self.rows]
        return {"schema": SCHEMA, "unit": unit, "a": self.a, "b": self.b, "whole": row(self.whole), "accounts": rows}


def compare(a: Report, b: Report) -> Diff:
    """Compare two runs. Raises InputError when one of them has kept no token: then there is nothing to divide by."""
    names = sorted({*a.accounts, *b.accounts}, key=lambda name: (LAYERS.index(name.partition(".")[0]), name))
    rows = [DiffRow(name, _per_token(a, _ns(a, name)), _per_token(b, _ns(b, name))) for name in names]
    whole = DiffRow("paid", _per_token(a, a.paid_ns), _per_token(b, b.paid_ns))
    assert sum(row.more for row in rows) == whole.more, "the differences do not sum to the whole"
    return Diff(a.run.name, b.run.name, sorted(rows, key=lambda row: -abs(row.more)), whole)


def _ns(report: Report, name: str) -> int:
    return report.accounts[name].ns if name in report.accounts else 0


def _per_token(report: Report, ns: int) -> Fraction:
    if not report.work.kept_tokens:
        raise InputError(
            "has no kept token to compare by", where=report.run.path, do="compare runs that have saved a checkpoint"
        )
    return Fraction(ns * PER, 10**9 * report.work.kept_tokens)
