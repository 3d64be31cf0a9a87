"""The runs of a folder, one row each, from their reports."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from argosy.errors import ArgosyError, InputError
from argosy.ledger.cells import NOT_KNOWN, amount, decimal, number, percent, seconds
from argosy.ledger.report import build_report
from argosy.ledger.report_model import Report
from argosy.registry.run_folder import RunFolder, find_runs

SCHEMA = "argosy.runs/1"


@dataclass(frozen=True)
class RunRow:
    """One run. Unknown is None; a run whose books cannot be kept has an `error` and nothing else."""

    id: str
    name: str
    path: str
    state: str
    steps: int | None = None
    tokens: int | None = None
    loss: float | None = None
    """Nats per token of the last evaluation, else of the last step."""
    bits_per_byte: float | None = None
    paid_ns: int | None = None
    useful_share: float | None = None
    money: str | None = None
    currency: str | None = None
    error: str | None = None


def list_runs(root: Path, *, tolerant: bool = False) -> list[RunRow]:
    """Rows of the runs directly in `root`, oldest first. Raises InputError when there is none."""
    if not root.is_dir():
        raise InputError("no such folder", where=str(root), do="name the folder of a run, or a folder of runs")
    runs = find_runs(root)
    if not runs:
        raise InputError(
            "is neither a run nor a folder of runs", where=str(root), do="`argosy train RECIPE` makes a run"
        )
    return [_row(run, tolerant) for run in runs]


def _row(run: RunFolder, tolerant: bool) -> RunRow:
    try:
        return _of_report(build_report(run.path, tolerant=tolerant))
    except ArgosyError as error:  # one damaged run must not hide the others
        return RunRow(run.info.id, run.info.name, str(run.path), "cannot be read", error=str(error))


def _of_report(report: Report) -> RunRow:
    evals = report.eval_curve or report.train_curve
    return RunRow(
        id=report.run.id,
        name=report.run.name,
        path=report.run.path,
        state=report.run.state,
        steps=report.steps,
        tokens=report.tokens,
        loss=evals[-1].loss if evals else None,
        bits_per_byte=evals[-1].bits_per_byte if evals else None,
        paid_ns=report.paid_ns,
        useful_share=report.layers["useful"].share if report.paid_ns else None,
        money=report.money,
        currency=report.currency,
    )


def runs_json(rows: Sequence[RunRow], root: Path) -> dict[str, Any]:
    """Stable keys of `argosy report ROOT --json`."""
    return {"schema": SCHEMA, "root": str(root), "runs": [asdict(row) for row in rows]}


def render_runs(rows: Sequence[RunRow], console: Console) -> None:
    """Print `rows` as a table on `console`."""
    wide = console.width >= 110
    table = Table(box=None, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0), header_style="dim")
    for name in ("run", "id", "state") if wide else ("run", "state"):
        table.add_column(name, overflow="fold")
    for name in ("steps", "tokens", "loss", "bits/byte", "paid s", "useful", "money"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        folder = Path(row.path).name
        money = amount(row.money) if row.currency is None else f"{amount(row.money)} {row.currency}"
        table.add_row(
            Text(row.name if row.name == folder else f"{folder} ({row.name})"),
            *((Text(row.id),) if wide else ()),
            Text(row.state.partition(":")[0]),
            number(row.steps),
            number(row.tokens),
            decimal(row.loss, 3),
            decimal(row.bits_per_byte, 3),
            NOT_KNOWN if row.paid_ns is None else seconds(row.paid_ns),
            percent(row.useful_share),
            money,
        )
    with console.capture() as drawn:
        console.print(table)
        for row in rows:
            if row.error is not None:
                console.print(Text(row.error))
    console.file.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))
