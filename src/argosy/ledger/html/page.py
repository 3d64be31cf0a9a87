"""A report as one HTML page: no script needed to read it, nothing loaded from anywhere, light and dark.

All figures come from the same :class:`~argosy.ledger.report_model.Report` as the terminal's and the JSON's, which is
embedded whole in a ``<script type="application/json" id="report">``. Where a figure was rounded, the exact one is in
the ``value`` of its ``<data>`` element.
"""

from importlib.resources import files
from pathlib import Path

import orjson

from argosy.ledger.files import write_text
from argosy.ledger.html.blocks import (
    attempts,
    crosstab,
    details,
    head,
    notes,
    samples,
    speed,
    tiles,
    verdict,
    warnings,
    waterfall_table,
)
from argosy.ledger.html.curves import learning
from argosy.ledger.html.markup import Markup, el
from argosy.ledger.html.over_time import over_time
from argosy.ledger.html.pictures import heat, icicle, step
from argosy.ledger.report_model import Report

SHOWN_SAMPLES = 20
"""Newest texts of the model that the page keeps, so that it stays small."""

_HATCH = Markup(
    '<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>'
    '<pattern id="hatch" width="9" height="100" patternUnits="userSpaceOnUse">'
    '<rect width="4" height="100" fill="var(--card)" opacity="0.75"/></pattern></defs></svg>'
)


def page(report: Report) -> str:
    """The whole page."""
    blocks = (
        *(verdict, tiles, warnings, waterfall_table, icicle, learning, over_time, attempts, speed),
        *(details, heat, step, crosstab, samples, notes),
    )
    title = f"{report.run.name}: where {report.run.id} spent its paid time"
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
        el("body", _HATCH, el("main", head(report), [block(report) for block in blocks]), _embedded(report)),
        lang="en",
    )


def write_page(report: Report, file: Path) -> None:
    """Write the page to `file`, whole or not at all. Raises InputError when it cannot be written."""
    write_text(file, page(report))


def _embedded(report: Report) -> Markup:
    content = report.to_json()
    content["samples"] = content["samples"][-SHOWN_SAMPLES:]
    # "<" inside a script could end it
    text = orjson.dumps(content).decode().replace("<", "\\u003c")
    return el("script", Markup(text), type="application/json", id="report")
