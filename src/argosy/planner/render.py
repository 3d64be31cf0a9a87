"""Tables of the planner for a terminal."""

import io
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from argosy.hardware.parts import GIB
from argosy.layout.layout import Layout
from argosy.planner.answer import Answer, Scale, links
from argosy.planner.detail import Detail
from argosy.planner.explain import Term
from argosy.planner.fits import FitVerdict
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
    if (headline := validation.headline()) is not None:
        console.print(f"step time: {headline:.1%} mean over sources of the median error (≥ 5 rows of ≥ 10 % MFU)")
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


def print_answer(answer: Answer, top: int, scales: Sequence[Scale], console: Console | None = None) -> None:
    """The answer of `argosy plan search`."""
    console = console or Console()
    found, cluster = answer.found, answer.found.cluster
    best = found.best
    console.print(
        f"{found.question.name}: {found.question.parameters / 1e9:.2f}B parameters, {found.question.batch_tokens:,} "
        f"tokens per batch, on {cluster.count} × {cluster.part.id}; {found.space.considered:,} layouts considered, "
        f"{len(found.order):,} fit"
    )
    table = Table(title="best layouts", title_justify="left")
    for name in ("", "layout", "step", "tokens/s/GPU", "memory", "binding", "worst case"):
        table.add_column(name, justify="left" if name in ("", "layout", "binding") else "right", overflow="fold")
    low, high = found.prediction.interval_s
    for i in [best, *(int(i) for i in found.order if i != best)][:top]:
        regret = found.regret.get(i)
        table.add_row(
            "→" if i == best else "",
            describe(found.layout(i)),
            f"{found.prediction.step_time_s[i]:.3g} s [{low[i]:.3g}–{high[i]:.3g}]",
            f"{found.prediction.tokens_per_s_per_gpu[i]:,.0f}",
            f"{found.prediction.peak_memory_bytes[i] / GIB:.1f} GiB",
            found.prediction.binding(i),
            "" if regret is None else f"{regret:+.0%}",
        )
    console.print(table)
    crossing = ", ".join(f"{axis} over the {link}" for axis, link in links(found.layout(best), cluster).items())
    console.print(f"axes: {crossing or 'one accelerator'}")
    console.print(terms_table("memory of the fullest rank", answer.memory_terms))
    if (books := answer.books) is not None and answer.tokens is not None:
        cost = "price unknown" if books.cost is None else f"{books.cost:,.0f} {books.currency}"
        console.print(
            f"{answer.tokens / 1e9:,.4g}B tokens: {books.days:.3g} days, {cost}; useful {books.useful_share:.1%} "
            f"(a failure every {books.mtbf_s / 3600:.3g} h, saved every {books.interval_s / 60:.3g} min)"
        )
        if answer.final_loss is not None and answer.optimum is not None:
            o = answer.optimum
            console.print(
                f"expected loss {answer.final_loss:.3f} nats per token; the same time would train "
                f"{o.parameters / 1e9:.3g}B parameters on {o.tokens / 1e9:,.4g}B tokens to {o.loss:.3f}"
            )
        if answer.spot_break_even_per_day is not None:
            console.print(f"spot pays below {answer.spot_break_even_per_day:.2g} interruptions per day")
        if cluster.price is not None:
            p = cluster.price
            console.print(f"price {float(p.amount):.2f} {p.currency}/h per accelerator ({p.source}, {p.date})")
    if scales:
        console.print(_scales(scales, answer))


def print_pair(first: Detail, second: Detail, console: Console | None = None) -> None:
    """The answer of `argosy plan compare`."""
    console = console or Console()
    table = Table()
    for name in ("", describe(first.layout), describe(second.layout), "difference"):
        table.add_column(name, justify="right" if name else "left", overflow="fold")
    times = [d.found.prediction.step_time_s[d.index] for d in (first, second)]
    memories = [d.found.prediction.peak_memory_bytes[d.index] / GIB for d in (first, second)]
    table.add_row("step time (s)", *(f"{t:.4g}" for t in times), f"{times[1] / times[0] - 1:+.1%}")
    for name in dict.fromkeys([*first.time_terms, *second.time_terms]):
        pair = [d.time_terms.get(name, 0.0) for d in (first, second)]
        table.add_row(f"  {name}", *(f"{t:.4g}" for t in pair), f"{pair[1] - pair[0]:+.4g}")
    table.add_row("peak memory (GiB)", *(f"{m:.1f}" for m in memories), f"{memories[1] - memories[0]:+.1f}")
    table.add_row("binding", *(d.found.prediction.binding(d.index) for d in (first, second)), "")
    console.print(table)


def print_fit(verdict: FitVerdict, console: Console | None = None) -> None:
    """The answer of `argosy plan fit`."""
    console = console or Console()
    console.print(
        f"{verdict.verdict}: {verdict.need_bytes / GIB:.1f} of {verdict.room_bytes / GIB:.1f} GiB with "
        f"{describe(verdict.layout)}; {verdict.layouts_that_fit:,} layouts fit"
    )
    console.print(terms_table("memory of the fullest rank", verdict.terms))
    if verdict.reason:
        console.print(f"{verdict.reason} → {verdict.do}")


def describe(layout: Layout) -> str:
    """A layout in a few words."""
    degrees = [f"{axis} {getattr(layout, axis)}" for axis in layout.order if getattr(layout, axis) > 1]
    words = [" · ".join(degrees) or "one rank"]
    if layout.zero:
        words.append(f"zero {layout.zero}")
    if layout.pp > 1:
        words.append(layout.schedule + (f"×{layout.virtual_stages}" if layout.virtual_stages > 1 else ""))
    words.append(f"micro-batch {layout.micro_batch_sequences}")
    if layout.recompute != "none":
        words.append("recompute")
    return ", ".join(words)


def page(answer: Answer, scales: Sequence[Scale]) -> str:
    """The answer as one HTML page without scripts or outside resources."""
    console = Console(record=True, width=140, file=io.StringIO())
    print_answer(answer, 10, scales, console)
    return console.export_html(inline_styles=True)


def terms_table(title: str, terms: Sequence[Term]) -> Table:
    """Parts of a rank's peak."""
    table = Table(title=title, title_justify="left")
    for name in ("term", "GiB", "what lowers it"):
        table.add_column(name, justify="right" if name == "GiB" else "left")
    for term in terms:
        table.add_row(term.name, f"{term.bytes / GIB:.2f}", term.knob)
    return table


def _scales(scales: Sequence[Scale], answer: Answer) -> Table:
    table = Table(title="other sizes, and twice the price", title_justify="left")
    for name in ("accelerators", "days", "cost", "at twice the price", "a day saved costs"):
        table.add_column(name, justify="right")
    for s in scales:
        cost = "unknown" if s.cost is None else f"{s.cost:,.0f}"
        double = "unknown" if s.cost is None else f"{2 * s.cost:,.0f}"
        saved = "" if s.cost_per_day_saved is None else f"{s.cost_per_day_saved:,.0f}"
        table.add_row(str(s.count), f"{s.days:.3g}", cost, double, saved)
    return table
