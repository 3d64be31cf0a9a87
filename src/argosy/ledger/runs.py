"""The runs of a folder as rows, and the scorecard: how well paid time became kept tokens, and whether that improves."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from argosy.ledger.cells import NOT_KNOWN, amount, decimal, number, percent, seconds
from argosy.ledger.fleet import IDLE, Fleet, Member
from argosy.ledger.money import money_text, shares
from argosy.ledger.report_model import LAYERS, Report
from argosy.ledger.waterfall import LAYER_TITLE

SCHEMA = "argosy.runs/1"
MILLION = 10**6


@dataclass(frozen=True)
class RunRow:
    """One run. Unknown is None; a run whose books cannot be kept has an `error` and nothing else."""

    id: str
    name: str
    path: str
    state: str
    steps: int | None = None
    tokens: int | None = None
    kept_tokens: int | None = None
    """Those that a durable checkpoint holds."""
    loss: float | None = None
    """Nats per token of the last evaluation, else of the last step."""
    bits_per_byte: float | None = None
    paid_ns: int | None = None
    useful_share: float | None = None
    money: str | None = None
    money_per_million_kept: str | None = None
    """Money per million kept tokens."""
    paid_s_per_million_kept: float | None = None
    """Paid device-seconds per million kept tokens."""
    currency: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Scorecard:
    """All runs together, and the newest beside the ones before it."""

    useful_share: float | None
    idle_share: float | None
    kept_tokens: int
    money_per_million_kept: str | None
    paid_s_per_million_kept: float | None
    useful_trend: float | None
    """Useful share of the newest run less the median of the earlier ones."""
    cost_trend: float | None
    """Paid time per kept token of the newest run ÷ the median of earlier runs of a model of its size; below 1 is
    better."""
    cost_trend_runs: int
    """How many runs that compares with."""


def run_rows(fleet: Fleet) -> list[RunRow]:
    """One row for each run, oldest first."""
    return [_row(member) for member in fleet.members]


def scorecard(fleet: Fleet) -> Scorecard:
    """Figures of the whole folder."""
    rows = [row for row in run_rows(fleet) if row.error is None]
    kept = sum(row.kept_tokens or 0 for row in rows)
    useful_ns = sum(line.ns for name, line in fleet.accounts.items() if name.startswith("useful."))
    idle = fleet.accounts.get(IDLE)
    useful = [row.useful_share for row in rows if row.useful_share is not None]
    alike = _runs_of_one_size([member.report for member in fleet.members if member.report])
    return Scorecard(
        useful_share=useful_ns / fleet.paid_ns if fleet.paid_ns else None,
        idle_share=(idle.share if idle else 0.0) if fleet.paid_ns else None,
        kept_tokens=kept,
        money_per_million_kept=_per_million(fleet.money, kept),
        paid_s_per_million_kept=_paid_per_million(fleet.paid_ns, kept),
        useful_trend=useful[-1] - median(useful[:-1]) if len(useful) > 1 else None,
        cost_trend=alike[-1] / median(alike[:-1]) if len(alike) > 1 else None,
        cost_trend_runs=max(len(alike) - 1, 0),
    )


def _row(member: Member) -> RunRow:
    info, report = member.run.info, member.report
    if report is None:
        return RunRow(info.id, info.name, str(member.run.path), "cannot be read", error=member.error)
    evals, kept = report.eval_curve or report.train_curve, report.work.kept_tokens
    return RunRow(
        id=report.run.id,
        name=report.run.name,
        path=report.run.path,
        state=report.run.state,
        steps=report.steps,
        tokens=report.tokens,
        kept_tokens=kept,
        loss=evals[-1].loss if evals else None,
        bits_per_byte=evals[-1].bits_per_byte if evals else None,
        paid_ns=report.paid_ns,
        useful_share=report.layers["useful"].share if report.paid_ns else None,
        money=report.money,
        money_per_million_kept=_per_million(report.money, kept),
        paid_s_per_million_kept=_paid_per_million(report.paid_ns, kept),
        currency=report.currency,
    )


def _runs_of_one_size(reports: Sequence[Report]) -> list[float]:
    """Paid time per kept token of the runs whose model is as large as the newest one's, oldest first."""
    if not reports:
        return []
    size = reports[-1].run.parameters
    alike = [report for report in reports if report.run.parameters == size and report.work.kept_tokens]
    if not alike or alike[-1] is not reports[-1]:
        return []
    return [report.paid_ns / report.work.kept_tokens for report in alike]


def _per_million(money: str | None, tokens: int) -> str | None:
    if money is None or not tokens:
        return None
    return money_text(round(Fraction(money) * MILLION / tokens * 10**9))


def _paid_per_million(paid_ns: int, tokens: int) -> float | None:
    return paid_ns / 1e9 * MILLION / tokens if tokens else None


def runs_json(fleet: Fleet, root: Path) -> dict[str, Any]:
    """Stable keys of `argosy report ROOT --json`."""
    return {
        "schema": SCHEMA,
        "root": str(root),
        "runs": [asdict(row) for row in run_rows(fleet)],
        "paid_ns": fleet.paid_ns,
        "money": fleet.money,
        "currency": fleet.currency,
        "accounts": {name: asdict(line) for name, line in fleet.accounts.items()},
        "devices": [asdict(device) for device in fleet.devices],
        "scorecard": asdict(scorecard(fleet)),
        "refusals": fleet.refusals,
    }


def render_runs(fleet: Fleet, console: Console) -> None:
    """Print the runs and the scorecard on `console`."""
    rows = run_rows(fleet)
    with console.capture() as drawn:
        console.print(_runs_table(rows, wide=console.width >= 110))
        for row in rows:
            if row.error is not None:
                console.print(Text(row.error))
        if fleet.paid_ns:
            console.print()
            console.print(_scorecard_table(fleet))
        for refusal in fleet.refusals:
            console.print(Text(f"refused: {refusal}"))
    console.file.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))


def _runs_table(rows: Sequence[RunRow], *, wide: bool) -> Table:
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
    return table


def _scorecard_table(fleet: Fleet) -> Table:
    card, unit = scorecard(fleet), f" {fleet.currency}" if fleet.money is not None else ""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    devices = f"{len(fleet.devices)} device{'s' * (len(fleet.devices) != 1)}"
    table.add_row("paid", f"{seconds(fleet.paid_ns)} device-seconds, {amount(fleet.money)}{unit}, on {devices}")
    times = dict.fromkeys(LAYERS, 0)
    for name, line in fleet.accounts.items():
        times[name.partition(".")[0]] += line.ns
    percents = {layer: f"{LAYER_TITLE.get(layer, layer)} {float(part):.1f} %" for layer, part in shares(times).items()}
    table.add_row("of it", ", ".join(percents[layer] for layer in reversed(LAYERS) if times[layer]))
    if card.idle_share:
        table.add_row("idle", f"{percent(card.idle_share)} of it was paid for no run")
    if card.paid_s_per_million_kept is not None:
        each = f"{card.paid_s_per_million_kept:,.1f} device-seconds, {amount(card.money_per_million_kept)}{unit}"
        table.add_row("kept tokens", f"{card.kept_tokens:,}; a million of them cost {each}")
    trend = []
    if card.useful_trend is not None:
        trend.append(f"useful share {100 * card.useful_trend:+.1f} points")
    if card.cost_trend is not None:
        trend.append(f"paid time per kept token × {card.cost_trend:.2f} (against {card.cost_trend_runs} of its size)")
    if trend:
        table.add_row("newest run", f"{'; '.join(trend)}, against the median of the earlier ones")
    return table
