"""Tables of the planner for a terminal."""

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from argosy.planner.validate import GROUPS, Errors, Validation


def print_validation(validation: Validation, console: Console | None = None) -> None:
    """The error tables of `argosy plan validate`."""
    console = console or Console()
    constants = validation.constants
    rows = validation.cases.rows
    console.print(
        f"{len(rows)} rows, {len(validation.cases.predictable)} predicted with {len(constants)} constants "
        f"({constants.origin}); interval ±{np.expm1(constants.spread):.0%}"
    )
    for column in GROUPS:
        console.print(_errors(f"step time by {column}", validation.time_errors(column)))
    if memory := validation.memory_errors("source"):
        console.print(_errors("peak memory by source", memory))
    if rankings := validation.rankings():
        table = Table(title="ranking by model and number of accelerators", title_justify="left")
        for name in ("cell", "rows", "top-1 regret", "Kendall tau"):
            table.add_column(name, justify="left" if name == "cell" else "right")
        for r in rankings:
            table.add_row(r.cell, str(r.rows), f"{r.regret:.1%}", f"{r.kendall_tau:.2f}")
        mean = [np.mean([r.regret for r in rankings]), np.mean([r.kendall_tau for r in rankings])]
        table.add_row("mean", str(len(rankings)), f"{mean[0]:.1%}", f"{mean[1]:.2f}")
        console.print(table)
    if check := validation.fit_check():
        console.print(
            f"fits: {check.failed} failed rows, recall {check.recall:.1%}, precision {check.precision:.1%}; "
            f"{len(check.not_memory)} judged not to be memory"
        )
    if missing := sorted({name for row in rows for name in row.missing}):
        count = sum(bool(row.missing) for row in rows)
        console.print(f"{count} rows not predicted, for want of: {', '.join(missing)}")


def _errors(title: str, errors: Sequence[Errors]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("", "rows", "mean error", "median error", "bias"):
        table.add_column(name, justify="right" if name else "left")
    for e in errors:
        table.add_row(e.group, str(e.rows), f"{e.mean:.1%}", f"{e.median:.1%}", f"{e.bias:+.1%}")
    if len(errors) > 1:
        mean = [float(np.mean([getattr(e, name) for e in errors])) for name in ("mean", "median", "bias")]
        table.add_row("mean of groups", str(sum(e.rows for e in errors)), *(f"{m:.1%}" for m in mean))
    return table
