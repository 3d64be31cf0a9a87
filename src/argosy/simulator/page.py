"""The answer of a simulation as one HTML page: nothing loaded from anywhere, light and dark, readable without script.

It is built of the pieces of the run report (:mod:`argosy.ledger.html`), so that both look alike.
"""

import math
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import orjson

from argosy.errors import InputError
from argosy.ledger.html.blocks import NOTHING, section, table
from argosy.ledger.html.blocks import line as row
from argosy.ledger.html.chart import Series, line_chart
from argosy.ledger.html.markup import Markup, el
from argosy.ledger.html.scale import ticks
from argosy.ledger.html.strip import Piece, strip
from argosy.ledger.report_model import LAYERS
from argosy.simulator.answer import Answer, decisions
from argosy.simulator.record import Attempt
from argosy.simulator.render import amount, money, setting, time_of, worth_rows
from argosy.simulator.replicate import Interval

DAY_S = 86_400.0
ROWS = 60
"""Longest time line; an older attempt is drawn as part of its day."""
BINS = 24


def page(answer: Answer) -> str:
    """The whole page."""
    title = f"Simulated: {answer.scenario.job.gpus:,} GPUs, {answer.scenario.failures.title}"
    blocks = (_tiles, _waterfall, _distribution, _timeline, _tornado, _found, _worth, _assumed)
    return "<!doctype html>\n" + el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            el("title", title),
            el("link", rel="icon", href="data:,"),
            el("style", Markup(files("argosy.ledger.html").joinpath("page.css").read_text(encoding="utf-8"))),
        ),
        el(
            "body",
            el("main", _head(answer), [block(answer) for block in blocks]),
            el(
                "script",
                Markup(orjson.dumps(answer.to_json()).decode().replace("<", "\\u003c")),
                type="application/json",
                id="simulation",
            ),
        ),
        lang="en",
    )


def write_page(answer: Answer, file: Path) -> None:
    """Write the page to `file`, whole or not at all. Raises InputError when it cannot be written."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page(answer), encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"cannot be written: {error.strerror}", where=str(file), do="give another --html") from None


def _head(answer: Answer) -> Markup:
    job, failures = answer.scenario.job, answer.scenario.failures
    rate = failures.per_s(job.nodes)
    about = [
        f"{job.gpus:,} GPUs",
        f"{job.spares} spare nodes",
        failures.title,
        f"a failure every {time_of(1 / rate)}" if rate else "no failures",
        f"{len(answer.sample)} replications",
    ]
    return el("header", el("h1", "Simulated job"), el("p", " · ".join(about)))


def _tiles(answer: Answer) -> Markup:
    sample, job = answer.sample, answer.scenario.job
    useful, effective = Interval.of(sample.useful_share), Interval.of(sample.effective_share)
    shown = [
        ("useful", f"{useful.mean:.1%}", f"of what is paid is useful{_width(useful)}"),
        ("effective", f"{effective.mean:.1%}", "of the job's own time"),
        ("formula", f"{answer.closed_form:.1%}", "by Daly's form, whole restarts"),
        ("restarts", f"{sample.restarts.mean():,.0f}", f"restarts in {sample.wall_s.mean() / DAY_S:,.1f} days"),
    ]
    if sample.money is not None:
        shown.append(("money", amount(float(sample.money.mean())), f"{job.currency} paid"))
    if answer.worth:
        minute = answer.worth.restart_minute_per_month
        shown.append(("minute", amount(minute.mean), f"{_unit(answer)} a month for a minute less to restart"))
    return el(
        "div",
        [el("div", el("b", value), el("span", text), id=f"tile-{key}") for key, value, text in shown],
        class_="tiles",
    )


def _waterfall(answer: Answer) -> Markup:
    """From what was paid down to what was useful, in the order of the run report."""
    sample, paid_s = answer.sample, float(answer.sample.paid_s.mean())
    paid = None if sample.money is None else float(sample.money.mean())
    hours, hours_unit = _thousands(paid_s / 3600, "GPU-hours")
    sums, sums_unit = _thousands(paid or 0.0, answer.currency or "money")

    def bar(title: str, layer: str, seconds: float, begin: float, style: str) -> Markup:
        share = seconds / paid_s
        piece = Piece(max(begin, 0.0), min(begin + share, 1.0), layer, f"{title}: {seconds / 3600:,.0f} GPU-hours")
        money = "" if paid is None else amount(paid * share / sums)
        cells = (amount(seconds / 3600 / hours), f"{100 * share:.2f}", money)
        return el(
            "tr",
            el("th", title, scope="row"),
            [el("td", cell) for cell in cells],
            el("td", strip([piece]), class_="wide"),
            class_=style,
        )

    lines = [bar("paid", "paid", paid_s, 0.0, "whole")]
    end = 1.0
    for layer in LAYERS:
        inside = [(name, s) for name, s in sample.accounts.items() if name.partition(".")[0] == layer]
        if not inside:
            continue
        total_s = sum(s for _, s in inside)
        end -= total_s / paid_s
        lines.append(bar(layer, layer, total_s, end, "whole"))
        at = end
        for name, seconds in sorted(inside, key=lambda item: -item[1]):
            lines.append(bar(name.partition(".")[2], layer, seconds, at, "part"))
            at += seconds / paid_s
    return el(
        "section",
        el("h2", "Where the paid time goes"),
        el("p", "Mean over all replications.", class_="note"),
        table(["", hours_unit, "%", sums_unit, ""], lines),
        id="waterfall",
    )


def _thousands(largest: float, unit: str) -> tuple[float, str]:
    """What a column is divided by so that it is narrow enough for a telephone, and its title."""
    return (1e3, f"k {unit}") if largest >= 1e6 else (1.0, unit)


def _distribution(answer: Answer) -> Markup:
    """How useful shares are spread over the replications."""
    shares = 100 * answer.sample.useful_share
    if len(shares) < 2:
        return NOTHING
    counts, edges = np.histogram(shares, bins=min(BINS, max(4, len(shares) // 4)))
    steps = [(float(edges[0]), 0.0)]
    for count, left, right in zip(counts, edges[:-1], edges[1:], strict=True):
        steps += [(float(left), float(count)), (float(right), float(count))]
    quantiles = [(float(np.quantile(shares, (i + 0.5) / 100)), i + 0.5) for i in range(100)]
    charts = [
        line_chart(
            "Distribution of the useful share",
            [Series("jobs", steps, "train")],
            x_title="useful % of what is paid",
            y_title="replications",
            x_format=lambda v: f"{v:.3g}",
            y_format=lambda v: f"{v:.0f}",
            x_from_zero=False,
        ),
        line_chart(
            "Share of jobs below",
            [Series("jobs below", quantiles, "eval")],
            x_title="useful % of what is paid",
            y_title="% of jobs",
            x_format=lambda v: f"{v:.3g}",
            y_format=lambda v: f"{v:.0f}",
            x_from_zero=False,
        ),
    ]
    low, middle, high = (float(np.quantile(shares, q)) for q in (0.05, 0.5, 0.95))
    note = f"Half of the jobs are above {middle:.1f} %, nine of ten between {low:.1f} and {high:.1f} %."
    return section("How sure is the useful share", note, el("div", [el("div", c) for c in charts], class_="charts"))


def _timeline(answer: Answer) -> Markup:
    """The first course, one row a day: steps, standstill, and what was undone."""
    course = answer.course
    days = max(1, math.ceil(course.wall_s / DAY_S - 0.01))  # the last save may be a moment late
    per_row = max(1, math.ceil(days / ROWS))
    length_s = per_row * DAY_S
    pieces = [(0.0, course.wall_s, "stability", "waiting for machines or people"), *_pieces(course.record.attempts)]
    marks = decisions(course)
    rows = []
    for number in range(math.ceil(days / per_row)):
        begin_s, end_s = number * length_s, (number + 1) * length_s
        cut = [
            Piece((max(t0, begin_s) - begin_s) / length_s, (min(t1, end_s) - begin_s) / length_s, style, title)
            for t0, t1, style, title in pieces
            if t0 < end_s and t1 > begin_s
        ]
        at = [(t - begin_s) / length_s for t, _, _ in marks if begin_s <= t < end_s]
        name = f"day {number * per_row + 1}" + (f" to {(number + 1) * per_row}" if per_row > 1 else "")
        rows.append(el("tr", el("th", name, scope="row"), el("td", strip(cut, at))))
    keys = (("useful", "kept steps"), ("stability", "standstill"), ("stability shade1", "steps undone"))
    return el(
        "section",
        el("h2", "One course over time"),
        el("p", "The first replication; dashed: a policy was asked and acted.", class_="note"),
        el("table", el("tbody", rows), class_="time"),
        el("ul", [_key(style, text) for style, text in keys], class_="legend"),
        id="over-time",
    )


def _pieces(attempts: Sequence[Attempt]) -> "list[tuple[float, float, str, str]]":
    """(from, to, style, title) of standstill, kept and undone steps; standstill lies under all."""
    found: list[tuple[float, float, str, str]] = []
    restored = [made.restored[0] if made.restored else None for made in attempts]
    kept_below = math.inf
    undone: list[float] = []
    for to in reversed(restored):  # a step is undone when a later attempt went on from before it
        undone.append(kept_below)
        kept_below = min(kept_below, math.inf if to is None else to)
    for attempt, limit in zip(attempts, reversed(undone), strict=True):
        end_s = attempt.end_s or attempt.alive_s
        reason = f": {attempt.reason}" if attempt.reason else ""
        found.append((attempt.start_s, end_s, "stability", f"standstill{reason}"))
        kept = [b for b in attempt.blocks if b.first + b.count <= limit]
        lost = [b for b in attempt.blocks if b.first + b.count > limit]
        for blocks, style, title in ((kept, "useful", "kept steps"), (lost, "stability shade1", "steps undone")):
            if blocks:
                steps = sum(b.count for b in blocks)
                found.append((blocks[0].t0_s, blocks[-1].t1_s, style, f"{steps:,} {title}"))
    return found


def _key(style: str, text: str) -> Markup:
    swatch = el("svg", el("rect", width=10, height=10, class_=style), viewBox="0 0 10 10", aria_hidden="true")
    return el("li", swatch, text)


def _tornado(answer: Answer) -> Markup:
    """What the cost of the work hangs on."""
    if not answer.swings:
        return NOTHING
    middle = float(np.mean(answer.sample.cost_of_work(answer.question.value_per_day)))
    finite = [c for swing in answer.swings for c in swing.cost if math.isfinite(c)]
    low, high = min([*finite, middle]), max([*finite, middle])
    low, high = low - 0.04 * (high - low or 1.0), high + 0.04 * (high - low or 1.0)

    def at(value: float) -> float:
        return min(max((value - low) / (high - low), 0.0), 1.0)

    lines = []
    for swing in answer.swings:
        half, twice = swing.cost
        sides = [
            Piece(min(at(half), at(middle)), max(at(half), at(middle)), "comm", f"{swing.name} × 0.5: {amount(half)}"),
            Piece(
                min(at(twice), at(middle)), max(at(twice), at(middle)), "decision", f"{swing.name} × 2: {amount(twice)}"
            ),
        ]
        cells = (amount(half), amount(twice))
        lines.append(
            el(
                "tr",
                el("th", swing.name, scope="row"),
                [el("td", cell) for cell in cells],
                el("td", strip(sides, [at(middle)]), class_="wide"),
            )
        )
    marks = ", ".join(amount(value) for value in ticks(low, high, 4))
    note = (
        f"Cost of the undisturbed work of this time in {_unit(answer)}, with one assumption at half and at twice; "
        f"dashed: as assumed, {amount(middle)}. The scale runs over {marks}."
    )
    return el(
        "section",
        el("h2", "What it hangs on"),
        el("p", note, class_="note"),
        table(["", "at half", "at twice", ""], lines),
        id="tornado",
    )


def _found(answer: Answer) -> Markup:
    if answer.found is None:
        return NOTHING
    lines = []
    for found in answer.found.rows[:40]:
        tie = "cannot be told from the best" if found.ties and found.more_than_best.mean else ""
        above = money(found.more_than_best) if found.more_than_best.mean else "best"
        cells = (f"{100 * found.useful.mean:.2f}", amount(found.cost.mean), above, tie)
        lines.append(row(setting(found.setting), cells))
    refused = [el("li", f"{setting(s)}: {why}") for s, why in answer.found.refused]
    heads = ["policy", "useful %", f"cost of the work ({_unit(answer)})", "above the best", ""]
    note = "All on the same dice, so differences are surer than each value; 95 % intervals."
    return section("Policies compared", note, table(heads, lines), el("ul", refused) if refused else None)


def _worth(answer: Answer) -> Markup:
    if answer.worth is None:
        return NOTHING
    return section("What things are worth", None, _words(worth_rows(answer)))


def _assumed(answer: Answer) -> Markup:
    job, failures = answer.scenario.job, answer.scenario.failures
    lines = [("step", f"{job.step_time_s:g} s")]
    for tier, times in job.saves.items():
        text = f"blocks {times.block_s:g} s, counts after {times.durable_s:g} s, loads in {times.restore_s:g} s"
        lines.append((f"save to {tier}", text))
    for rung, phases in job.restart.items():
        lines.append((rung.replace("_", " "), f"{sum(phases.values()):,.0f} s without loading"))
    for fault in failures.faults:
        mended = f", mended in {time_of(fault.repair_median_s)} (median)" if fault.repair_median_s else ""
        lines.append((f"{fault.name} ({fault.kind})", f"{fault.share:.1%}, known after {fault.detect_s:g} s{mended}"))
    return section("Assumed", failures.source or None, _words(lines))


def _words(lines: Sequence[tuple[str, str]]) -> Markup:
    """A table of names and what is said of them."""
    rows = [el("tr", el("th", name, scope="row"), el("td", text, class_="words")) for name, text in lines]
    return el("div", el("table", el("tbody", rows)), class_="scroll", tabindex=0)


def _unit(answer: Answer) -> str:
    return answer.currency or "device-seconds"


def _width(interval: Interval) -> str:
    return f" (± {100 * interval.half:.2f})" if math.isfinite(interval.half) else ""
