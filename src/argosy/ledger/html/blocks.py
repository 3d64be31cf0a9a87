"""The blocks of the page that are words and tables. Each takes the report and gives its section, or nothing."""

from collections.abc import Sequence

from argosy.ledger.cells import (
    NOT_KNOWN,
    amount,
    counts,
    decimal,
    duration,
    number,
    percent,
    printable,
    seconds,
    si,
)
from argosy.ledger.details import Cell, alerts, detail_tables
from argosy.ledger.html.markup import Markup, el, join
from argosy.ledger.html.strip import Piece, strip
from argosy.ledger.report_model import AttemptRow, Report
from argosy.ledger.waterfall import Row, marks, waterfall

SHOWN_ATTEMPTS = 100
NOTHING = Markup("")


def section(title: str, note: str | None, *content: object) -> Markup:
    """A block with a heading and what a reader should know about it."""
    return el("section", el("h2", title), el("p", note, class_="note") if note else None, *content)


def exact(value: object, shown: str) -> Markup:
    """A rounded figure with the exact one inside."""
    return el("data", shown, value="" if value is None else value)


def table(heads: Sequence[object], rows: Sequence[Markup], foot: Markup | None = None) -> Markup:
    """A table that scrolls by itself where it is wider than the page; a head may be an element of its own."""
    cells = [head if isinstance(head, Markup) else el("th", head, scope="col") for head in heads]
    parts = (el("thead", el("tr", cells)), el("tbody", list(rows)), el("tfoot", foot) if foot else None)
    return el("div", el("table", *parts), class_="scroll", tabindex=0)


def line(name: object, cells: Sequence[object], style: str | None = None) -> Markup:
    """A row with its name in front."""
    return el("tr", el("th", name, scope="row"), [el("td", cell) for cell in cells], class_=style)


def head(report: Report) -> Markup:
    run = report.run
    size = f"{run.parameters:,} parameters" if run.parameters is not None else "parameters unknown"
    devices = f"{run.devices:,} device{'s' * (run.devices != 1)}"
    about = (run.id, run.state, size, devices, f"as of {report.as_of}")
    return el("header", el("h1", run.name), el("p", " · ".join(about)))


def verdict(report: Report) -> Markup:
    """The first thing that is read."""
    found = report.verdict
    rows = [("because", text) for text in found.evidence] + [("do", found.do)]
    if found.saves_at_most_ns is not None and found.account is not None:
        money = report.accounts[found.account].money
        price = f", {amount(money)} {report.currency}" if money is not None else ""
        rows.append(("saves", f"at most {seconds(found.saves_at_most_ns)} device-seconds{price}"))
    listed = [(el("dt", word), el("dd", text)) for word, text in rows]
    return el("section", el("h2", found.headline), el("dl", listed), class_=f"verdict {found.level}", id="verdict")


def tiles(report: Report) -> Markup:
    """The figures that everybody asks for."""
    useful, work, use = report.layers["useful"], report.work, report.utilisation
    points = [point for point in report.eval_curve if point.bits_per_byte is not None]
    gzip = report.references.gzip_bits_per_byte
    money = f"{amount(report.money)} {report.currency}" if report.money is not None else "price unknown"
    shown = [
        ("paid", exact(report.paid_ns, f"{seconds(report.paid_ns)} s"), f"paid device-time · {money}"),
        ("useful", exact(useful.ns, percent(useful.share) if report.paid_ns else NOT_KNOWN), "of it was useful"),
        (
            "tokens",
            exact(report.tokens, number(report.tokens)),
            f"tokens learned in {counts([(work.kept_steps, 'kept'), (work.at_risk_steps, 'at risk')])} steps",
        ),
        ("speed", exact(report.tokens_per_s, number(report.tokens_per_s)), "tokens per second, in steps"),
        ("mfu", exact(use.mfu, percent(use.mfu)), "MFU" if use.why is None else f"MFU unknown: {use.why}"),
    ]
    if points:
        beside = f" · gzip -9: {gzip:.3f}" if gzip is not None else ""
        last = points[-1].bits_per_byte
        shown.insert(2, ("bits", exact(last, decimal(last, 3)), f"bits per held-out byte{beside}"))
    return el(
        "div",
        [el("div", el("b", value), el("span", text), id=f"tile-{key}") for key, value, text in shown],
        class_="tiles",
    )


def waterfall_table(report: Report) -> Markup:
    """From what was paid down to what was useful."""
    rows = [_waterfall_row(row, report.paid_ns) for row in waterfall(report)]
    note = f"{report.basis}; {report.price_note}. Parts sum to the whole exactly."
    below = []
    if any(found.imputed_ns for found in report.accounts.values()):
        below.append("~ and hatching: closed from outside, not measured.")
    if any(found.estimated_ns for found in report.accounts.values()):
        below.append("≈: divided by the shares of sampled steps, or by comparing ranks.")
    if report.at_risk_ns:
        below.append(f"{report.value_at_risk}.")
    if report.overlapped_ns:
        below.append(f"Memo: {seconds(report.overlapped_ns)} device-seconds were hidden under other spans.")
    heads = ("", "device-seconds", "%", report.currency or "money", "")
    return el(
        "section",
        el("h2", "Where the paid time went"),
        el("p", note[0].upper() + note[1:], class_="note"),
        table(heads, rows),
        el("p", " ".join(below), class_="note") if below else None,
        id="waterfall",
    )


def _waterfall_row(row: Row, paid_ns: int) -> Markup:
    whole, scale = row.account is None, paid_ns or 1
    end_ns = row.start_ns + row.line.ns
    title = f"{row.account or row.title}: {seconds(row.line.ns)} device-seconds"
    pieces = [Piece(row.start_ns / scale, end_ns / scale, row.layer, title)] if row.line.ns else []
    if row.line.imputed_ns and not whole:
        pieces.append(Piece((end_ns - row.line.imputed_ns) / scale, end_ns / scale, "hatched", f"{title}, imputed"))
    cells = (exact(row.line.ns, seconds(row.line.ns)), row.share, exact(row.line.money, row.money))
    return el(
        "tr",
        el("th", f"{row.title}{marks(row.line)}", scope="row"),
        [el("td", cell) for cell in cells],
        el("td", strip(pieces), class_="wide"),
        class_="whole" if whole else "part",
        data_account=row.account or row.layer,
    )


def speed(report: Report) -> Markup:
    """MFU with the operands that anybody can multiply again."""
    use = report.utilisation
    if use.tokens_per_s is None or use.flops_per_token is None or use.peak_flops_per_s is None or use.ranks is None:
        return NOTHING
    heads = ("MFU", "tokens/s", "FLOP/token", "ranks", "peak of one rank", "HFU")
    cells = (
        exact(use.tokens_per_s, number(use.tokens_per_s)),
        exact(use.flops_per_token, si(use.flops_per_token)),
        use.ranks,
        exact(use.peak_flops_per_s, f"{si(use.peak_flops_per_s)}FLOP/s"),
        exact(use.hfu, percent(use.hfu)),
    )
    note = f"MFU = tokens/s × FLOP per token ÷ (ranks × peak), of the newest attempt. Peak: {use.peak_source}."
    return section("Speed", note, table(heads, [line(exact(use.mfu, percent(use.mfu)), cells)]))


def attempts(report: Report) -> Markup:
    """One row for each start of the run's processes."""
    shown = report.attempts[-SHOWN_ATTEMPTS:]
    if not shown:
        return NOTHING
    hidden = len(report.attempts) - len(shown)
    phases = dict.fromkeys(phase for row in shown for phase, ns in row.phases.items() if ns)
    heads = ["attempt", "started", "ranks", "from", "steps", "lost", "step time", "tokens/s", "paid s"]
    names = [phase.replace("_", " ").replace("no process.", "gap ") for phase in phases]
    note = f"The last {len(shown)} of {len(report.attempts)}. " if hidden else ""
    ended = el("th", "ended", scope="col", class_="words")
    return el(
        "section",
        el("h2", "Attempts and restarts"),
        el("p", f"{note}Start-up phases and gaps in device-seconds.", class_="note"),
        table([*heads, ended, *names], [_attempt(row, list(phases)) for row in shown]),
        id="attempts",
    )


def _attempt(row: AttemptRow, phases: list[str]) -> Markup:
    cells = [
        f"{row.started[:10]} {row.started[11:19]}",
        row.world_size,
        row.restored or "start",
        number(row.visits),
        number(row.lost_visits),
        exact(row.step_time_s, duration(row.step_time_s)),
        exact(row.tokens_per_s, number(row.tokens_per_s)),
        exact(row.paid_ns, seconds(row.paid_ns)),
    ]
    spent = [exact(row.phases[name], seconds(row.phases[name])) if name in row.phases else "" for name in phases]
    return el(
        "tr",
        el("th", row.attempt, scope="row"),
        [el("td", cell) for cell in cells],
        el("td", row.ended, class_="words"),
        [el("td", cell) for cell in spent],
    )


def crosstab(report: Report) -> Markup:
    """What devices did and what became of it, with both margins."""
    fates = sorted({fate for row in report.crosstab.values() for fate, ns in row.items() if ns})
    if not fates:
        return NOTHING

    def cells(row: dict[str, int]) -> list[object]:
        each = [exact(row[fate], seconds(row[fate])) if row.get(fate) else "" for fate in fates]
        return [*each, exact(sum(row.values()), seconds(sum(row.values())))]

    ordered = sorted(report.crosstab.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    sums = {fate: sum(row.get(fate, 0) for row in report.crosstab.values()) for fate in fates}
    titles = [fate.replace("_", " ") for fate in fates]
    return el(
        "section",
        el("h2", "What devices did, and what became of it"),
        el("p", "Device-seconds: the activity in rows, the fate of the work in columns.", class_="note"),
        table(["", *titles, "sum"], [line(phys, cells(row)) for phys, row in ordered], line("sum", cells(sums))),
        id="crosstab",
    )


def details(report: Report) -> Markup:
    """Causes, modules, steadiness, memory, worth: one section each."""
    return join(
        el(
            "section",
            el("h2", found.title),
            el("p", found.note, class_="note"),
            table(found.heads, [_detail(row, words=not any(found.heads)) for row in found.rows]),
            id=found.id,
        )
        for found in detail_tables(report)
    )


def _detail(row: Sequence[Cell], *, words: bool) -> Markup:
    cells = [exact(cell.value, cell.shown) if cell.value is not None else cell.shown for cell in row[1:]]
    return el(
        "tr", el("th", row[0].shown, scope="row"), [el("td", c, class_="words" if words else None) for c in cells]
    )


def warnings(report: Report) -> Markup:
    """What to look at besides the verdict."""
    found = alerts(report)
    if not found:
        return NOTHING
    return el("section", el("h2", "Alerts"), el("ul", [el("li", text) for text in found[:50]]), id="alerts")


def samples(report: Report) -> Markup:
    """What the model writes, the newest first."""
    if not report.samples:
        return NOTHING
    shown = []
    for sample in reversed(report.samples[-3:]):
        title = f"after step {sample.step:,}" if sample.step is not None else "at the end"
        text = el("pre", el("b", printable(sample.prompt)), printable(sample.text.rstrip()))
        shown.append((el("h3", title), text))
    return section("The model writes", None, shown)


def notes(report: Report) -> Markup:
    """What was refused and what is damaged."""
    found = [*report.notes, *report.refusals]
    if not found:
        return NOTHING
    return section("Notes", None, el("ul", [el("li", text) for text in found[:100]]))
