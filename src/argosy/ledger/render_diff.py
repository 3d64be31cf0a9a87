"""A comparison of two runs as text."""

from fractions import Fraction

from rich.console import Console
from rich.table import Table
from rich.text import Text

from argosy.ledger.diff import PER, Diff, DiffRow

SMALL = 0.002
"""Differences below this share of A are summed up in one line."""


def render_diff(diff: Diff, console: Console) -> None:
    """Print `diff`, the largest difference first; the lines sum to the last one."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("account")
    for name in ("A", "B", "B - A", "of A"):
        table.add_column(name, justify="right")
    least = abs(diff.whole.a) * SMALL
    shown = [row for row in diff.rows if abs(row.more) >= least]
    rest = [row for row in diff.rows if abs(row.more) < least]
    for row in shown:
        table.add_row(row.account, *_cells(row, diff.whole))
    if rest:
        a, b = (sum((getattr(row, side) for row in rest), Fraction(0)) for side in ("a", "b"))
        small = DiffRow(f"{len(rest)} smaller", a, b)
        table.add_row(small.account, *_cells(small, diff.whole), style="dim")
    table.add_row("paid", *_cells(diff.whole, diff.whole), style="bold")
    console.print(Text.assemble("A ", (diff.a, "bold"), "  B ", (diff.b, "bold")))
    console.print(f"device-seconds per {PER:,} kept tokens; the differences sum to the last line", style="dim")
    console.print(table)


def _cells(row: DiffRow, whole: DiffRow) -> tuple[str, str, str, str]:
    share = f"{float(row.more / whole.a):+.1%}" if whole.a else "n/a"
    return f"{float(row.a):,.2f}", f"{float(row.b):,.2f}", f"{float(row.more):+,.2f}", share
