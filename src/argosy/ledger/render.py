"""A report as text: verdict, waterfall, speed, learning, attempts, samples.

Works at 80 columns and up. Colours come from a palette that colour-blind readers can tell apart
(Okabe and Ito, "Color universal design", 2008) and only repeat what the words say. Without a
terminal rich prints the same text plain. ``n/a`` means unknown; 0 means zero.
"""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from argosy.ledger.cells import (
    amount,
    bar,
    counts,
    decimal,
    duration,
    length,
    number,
    percent,
    printable,
    seconds,
    si,
    sparkline,
)
from argosy.ledger.curve_point import Point
from argosy.ledger.details import Table as Details
from argosy.ledger.details import alerts, detail_tables
from argosy.ledger.report_model import Report
from argosy.ledger.waterfall import marks, waterfall

COLOUR = {
    "paid": "default",
    "decision": "#e69f00",
    "stability": "#d55e00",
    "comm": "#56b4e9",
    "compute": "#cc79a7",
    "unattributed": "#999999",
    "useful": "#009e73",
}
LEVEL_COLOUR = {
    "fine": "#009e73",
    "mention": "#56b4e9",
    "warn": "#e69f00",
    "alarm": "#d55e00",
    "undetermined": "#999999",
}
SHOWN_ATTEMPTS = 6
SHOWN_EVALS = 8


def render(report: Report, console: Console) -> None:
    """Print `report` on `console`, the verdict first."""
    with console.capture() as drawn:
        console.print(_title(report))
        for title, block in _sections(report, console):
            console.print()
            console.print(Text(title, style="bold underline"))
            console.print(Padding(block, (0, 0, 0, 2), expand=False))
    # tables pad every line to their full width, which makes diffs and copies of plain text ugly
    console.file.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))


def _sections(report: Report, console: Console) -> Iterator[tuple[str, RenderableType]]:
    yield "Verdict", _verdict(report)
    yield f"Where {seconds(report.paid_ns)} paid device-seconds went", _waterfall(report, console)
    yield "Speed", _speed(report)
    if report.eval_curve or report.train_curve:
        yield "Learning against cost", _learning(report, console)
    if report.attempts:
        yield "Attempts", _attempts(report)
    if report.work.lost_visits or report.work.skipped_visits:
        yield "What devices did (down) and what became of it (across), device-seconds", _crosstab(report)
    for found in detail_tables(report):
        yield found.title, _details(found)
    if warnings := alerts(report):
        yield "Alerts", Text("\n".join(warnings))
    if report.samples:
        yield "The model writes", _samples(report)
    if report.refusals:
        yield "Refused records (their time is in unattributed)", Text("\n".join(report.refusals[:20]))


# -- blocks ------------------------------------------------------------------------------------------


def _title(report: Report) -> Text:
    run = report.run
    return Text.assemble((run.name, "bold"), f"  {run.id}  {run.state}")


def _verdict(report: Report) -> RenderableType:
    verdict = report.verdict
    rows = _pairs()
    level = "" if verdict.level == "undetermined" else verdict.level  # the headline says it with its reason
    rows.add_row(level, Text(verdict.headline, style=f"bold {LEVEL_COLOUR[verdict.level]}"))
    for line in verdict.evidence:
        rows.add_row("because", line)
    rows.add_row("do", verdict.do)
    if verdict.saves_at_most_ns is not None and verdict.account is not None:
        money = report.accounts[verdict.account].money
        price = f", {amount(money)} {report.currency}" if money is not None else ""
        rows.add_row("saves", f"at most {seconds(verdict.saves_at_most_ns)} device-seconds{price}")
    return rows


def _waterfall(report: Report, console: Console) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("seconds", justify="right")
    table.add_column("%", justify="right")
    table.add_column(report.currency or "money", justify="right")
    table.add_column("", no_wrap=True)
    bar_width = max(10, min(60, console.width - 58))
    block = "#" if not console.encoding.lower().startswith("utf") else "█"
    for row in waterfall(report):
        whole = row.account is None
        name = f"{'' if whole else '  '}{row.title}{marks(row.line)}"
        picture = bar(row.start_ns, row.start_ns + row.line.ns, report.paid_ns, bar_width, block)
        style = "bold" if whole else ""
        cells = (name, seconds(row.line.ns), row.share, row.money)
        table.add_row(
            *(Text(cell, style=style) for cell in cells),
            Text(picture, style=COLOUR[row.layer] if whole else f"dim {COLOUR[row.layer]}"),
        )
    notes = [f"as of {report.as_of}; {report.basis}", report.price_note, *report.notes]
    if any(line.imputed_ns for line in report.accounts.values()):
        notes.append("~ partly imputed: closed from outside, not measured")
    if any(line.estimated_ns for line in report.accounts.values()):
        notes.append("≈ partly estimated: divided by the shares of sampled steps, or by comparing ranks")
    if report.at_risk_ns:
        notes.append(report.value_at_risk)
    if report.overlapped_ns:
        notes.append(f"memo: {seconds(report.overlapped_ns)} device-seconds were hidden under other spans")
    return Group(table, Text("\n".join(notes), style="dim"))


def _speed(report: Report) -> RenderableType:
    rows, use, work = _pairs(), report.utilisation, report.work
    rows.add_row("tokens/s", f"{number(report.tokens_per_s)} in step windows, all ranks together")
    rows.add_row("MFU", percent(use.mfu) if use.why is None else f"unknown: {use.why}")
    if use.mfu is not None or (use.why and "stale" in use.why):
        rows.add_row("", Text(_operands(report)))
    if use.hfu is not None and use.hfu != use.mfu:
        rows.add_row("HFU", percent(use.hfu))
    fates = [(work.kept_steps, "kept"), (work.at_risk_steps, "at risk")]
    lost = [(work.lost_visits, "computed and lost"), (work.skipped_visits, "skipped")]
    rows.add_row("steps", counts([*fates, *lost]))
    tokens = [(work.kept_tokens, "kept"), (work.at_risk_tokens, "at risk"), (work.lost_tokens, "lost")]
    rows.add_row("tokens", counts(tokens))
    if report.run.parameters is not None:
        rows.add_row("parameters", f"{report.run.parameters:,}")
    return rows


def _learning(report: Report, console: Console) -> RenderableType:
    unit = report.currency or "money"
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("step", "tokens", "device-s", unit, "loss", "bits/byte"):
        table.add_column(name, justify="right")
    table.add_column("", no_wrap=True)
    references = [
        (name, value)
        for name, value in (
            ("gzip -9", report.references.gzip_bits_per_byte),
            ("xz -9", report.references.xz_bits_per_byte),
        )
        if value is not None
    ]
    points = _thinned(report.eval_curve, SHOWN_EVALS)
    scale = max([p.bits_per_byte or 0.0 for p in points] + [value for _, value in references], default=0.0)
    width = max(8, min(40, console.width - 62))
    for point in points:
        table.add_row(
            f"{point.step:,}{'' if point.full else ' *'}",
            f"{point.tokens:,}",
            seconds(point.paid_ns),
            amount(point.money),
            decimal(point.loss, 4),
            decimal(point.bits_per_byte, 3),
            Text(length(point.bits_per_byte, scale, width), style=COLOUR["useful"]),
        )
    for name, value in references:
        table.add_row(name, "", "", "", "", decimal(value, 3), Text(length(value, scale, width), style="dim"))
    lines: list[RenderableType] = [table] if points or references else []
    if any(not point.full for point in points):
        lines.append(Text("* on a part of the held-out data", style="dim"))
    losses = [point.loss for point in report.train_curve if point.loss is not None]
    if losses:
        trend = sparkline(losses, min(len(losses), console.width - 46))
        lines.append(Text(f"training loss over paid time {trend} {losses[0]:.2f} → {losses[-1]:.2f}"))
    return Group(*lines)


def _attempts(report: Report) -> RenderableType:
    shown = report.attempts[-SHOWN_ATTEMPTS:]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for row in shown:
        table.add_column(f"attempt {row.attempt}", justify="right")
    phases = dict.fromkeys(phase for row in shown for phase, ns in row.phases.items() if ns)

    def line(name: str, cells: list[str]) -> None:
        table.add_row(name, *cells)

    line("started", [row.started[11:19] for row in shown])
    line("ranks", [str(row.world_size) for row in shown])
    line("from", [row.restored or "start" for row in shown])
    line("paid device-s", [seconds(row.paid_ns) for row in shown])
    for phase in phases:
        line(f"  {phase}", [seconds(row.phases[phase]) if phase in row.phases else "" for row in shown])
    line("steps", [f"{row.visits:,}" for row in shown])
    if any(row.lost_visits for row in shown):
        line("  lost", [f"{row.lost_visits:,}" for row in shown])
    line("step time", [duration(row.step_time_s) for row in shown])
    line("tokens/s", [number(row.tokens_per_s) for row in shown])
    ends = Text("\n".join(f"attempt {row.attempt} {row.ended}" for row in shown))
    hidden = len(report.attempts) - len(shown)
    head = [Text(f"the last {len(shown)} of {len(report.attempts)}", style="dim")] if hidden else []
    return Group(*head, table, ends)


def _crosstab(report: Report) -> RenderableType:
    fates = sorted({fate for row in report.crosstab.values() for fate, ns in row.items() if ns})
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for fate in [*fates, "sum"]:
        table.add_column(fate, justify="right")
    for phys, row in sorted(report.crosstab.items(), key=lambda item: (-sum(item[1].values()), item[0])):
        if sum(row.values()):
            cells = [seconds(row[fate]) if row.get(fate) else "" for fate in fates]
            table.add_row(phys, *cells, seconds(sum(row.values())))
    sums = [sum(row.get(fate, 0) for row in report.crosstab.values()) for fate in fates]
    table.add_row("sum", *map(seconds, sums), seconds(sum(sums)), style="bold")
    return table


def _details(found: Details) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=any(found.heads))
    for column, head in enumerate(found.heads):
        words = column == 0 or not any(found.heads)
        table.add_column(head, justify="left" if words else "right")
    for row in found.rows:
        table.add_row(*(cell.shown for cell in row))
    return Group(table, Text(found.note, style="dim"))


def _samples(report: Report) -> RenderableType:
    newest = report.samples[-1]
    head = f"after step {newest.step:,}" if newest.step is not None else ""
    return Group(
        Text(head, style="dim"),
        Text.assemble((printable(newest.prompt), "bold"), printable(newest.text.rstrip())),
    )


# -- helpers of the blocks ---------------------------------------------------------------------------


def _operands(report: Report) -> str:
    use = report.utilisation
    if use.tokens_per_s is None or use.flops_per_token is None or use.peak_flops_per_s is None:
        return ""
    return (
        f"= {use.tokens_per_s:,.0f} tokens/s × {si(use.flops_per_token)}FLOP/token "
        f"÷ ({use.ranks} × {si(use.peak_flops_per_s)}FLOP/s, {use.peak_source})"
    )


def _thinned(points: list[Point], most: int) -> list[Point]:
    """At most `most` points, the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


def _pairs() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    return table
