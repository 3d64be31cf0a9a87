"""Loss and bits per byte against steps and against what they cost, and the evaluations as a table."""

from collections.abc import Callable, Sequence
from fractions import Fraction

from argosy.ledger.cells import amount, decimal, seconds, si
from argosy.ledger.curve_point import Point
from argosy.ledger.html.blocks import NOTHING, exact, line, table
from argosy.ledger.html.chart import Level, Series, line_chart
from argosy.ledger.html.markup import Markup, el
from argosy.ledger.report_model import Report

SHOWN_EVALS = 40

At = Callable[[Point], float]


def learning(report: Report) -> Markup:
    """Two curves over two scales. Without a price, or with a price of 0, cost is paid device-time."""
    if not report.train_curve and not report.eval_curve:
        return NOTHING
    cost_title, at_cost = _cost(report)
    scales: list[tuple[str, At, Callable[[float], str]]] = [
        ("step", lambda point: point.step, compact),
        (cost_title, at_cost, compact),
    ]
    levels = [
        Level(name, value)
        for name, value in (
            ("gzip -9", report.references.gzip_bits_per_byte),
            ("xz -9", report.references.xz_bits_per_byte),
        )
        if value is not None
    ]
    charts = []
    for x_title, at, x_format in scales:
        loss = [
            Series("training", _of(report.train_curve, at, lambda p: p.loss), "train"),
            Series("held out", _of(report.eval_curve, at, lambda p: p.loss), "eval", dots=True),
        ]
        bits = [Series("model", _of(report.eval_curve, at, lambda p: p.bits_per_byte), "eval", dots=True)]
        for title, y_title, series, compared in (
            ("Loss", "nats per token", loss, ()),
            ("Compression", "bits per held-out byte", bits, levels),
        ):
            chart = line_chart(
                f"{title} over {x_title}",
                series,
                x_title=x_title,
                y_title=y_title,
                x_format=x_format,
                y_format=lambda value: f"{value:.2f}",
                levels=compared,
            )
            if chart:
                charts.append(el("div", el("h3", f"{title} over {x_title}"), chart))
    note = "Steps and evaluations that a restore undid are left out."
    return el(
        "section",
        el("h2", "Learning, by step and by cost"),
        el("p", note, class_="note"),
        el("div", charts, class_="charts"),
        _evaluations(report),
        id="learning",
    )


def compact(value: float) -> str:
    """A mark of an axis in few characters."""
    if value == 0:
        return "0"
    return f"{value:g}" if 1e-3 <= abs(value) < 10_000 else si(value).replace(" ", "") if value >= 1 else f"{value:.0e}"


def _cost(report: Report) -> tuple[str, At]:
    curve = [*report.train_curve, *report.eval_curve]
    if all(point.money is not None for point in curve) and any(Fraction(point.money or 0) for point in curve):
        return f"paid {report.currency}", lambda point: float(Fraction(point.money or 0))
    return "paid device-seconds", lambda point: point.paid_ns / 1e9


def _of(points: Sequence[Point], at: At, of: Callable[[Point], float | None]) -> list[tuple[float, float]]:
    return [(at(point), value) for point in points if (value := of(point)) is not None]


def _evaluations(report: Report) -> Markup | None:
    points, references = report.eval_curve[-SHOWN_EVALS:], report.references
    if not points:
        return None
    rows = [
        line(
            f"{point.step:,}{'' if point.full else ' *'}",
            (
                f"{point.tokens:,}",
                exact(point.paid_ns, seconds(point.paid_ns)),
                exact(point.money, amount(point.money)),
                exact(point.loss, decimal(point.loss, 4)),
                exact(point.bits_per_byte, decimal(point.bits_per_byte, 3)),
            ),
        )
        for point in points
    ]
    compressors = (("gzip -9", references.gzip_bits_per_byte), ("xz -9", references.xz_bits_per_byte))
    rows += [
        line(name, ("", "", "", "", exact(value, decimal(value, 3))))
        for name, value in compressors
        if value is not None
    ]
    heads = ("step", "tokens", "device-s", report.currency or "money", "loss", "bits/byte")
    part = "* on a part of the held-out data" if any(not point.full for point in points) else None
    return el("div", table(heads, rows), el("p", part, class_="note") if part else None, id="evaluations")
