"""Bars in a row of a table: SVG without text, stretched to the cell, so that the table's own text stays its size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from argosy.ledger.html.markup import Markup, el

LENGTH = 1000.0
THINNEST = 1.5
"""Any time at all is seen; in thousandths of the row."""


@dataclass(frozen=True)
class Piece:
    """A part of a strip, from `begin` to `end` as shares of its length."""

    begin: float
    end: float
    style: str
    title: str


def strip(pieces: Iterable[Piece], marks: Iterable[float] = ()) -> Markup:
    """Pieces side by side, later ones over earlier ones, with thin lines at `marks`."""
    return _stretched([_rect(piece) for piece in pieces], marks, "strip")


def columns(layers: Sequence[tuple[str, str, Sequence[float]]], marks: Iterable[float] = ()) -> Markup:
    """Columns of equal width, each divided among `layers` (style, title, share in each column) from the bottom up."""
    count = len(layers[0][2]) if layers else 0
    floor = [0.0] * count
    drawn = []
    for style, title, shares in layers:
        top = [low + share for low, share in zip(floor, shares, strict=True)]
        drawn.append(el("path", el("title", title), d=_band(floor, top), class_=style))
        floor = top
    return _stretched(drawn, marks, "columns")


def _band(low: Sequence[float], high: Sequence[float]) -> str:
    """The outline between two staircases; columns without height are left out."""
    width, parts = LENGTH / len(low), []
    for index, (bottom, top) in enumerate(zip(low, high, strict=True)):
        if top - bottom > 1e-4:
            left = f"{index * width:.1f}"
            parts.append(
                f"M{left} {100 - 100 * bottom:.2f}V{100 - 100 * top:.2f}h{width:.2f}V{100 - 100 * bottom:.2f}z"
            )
    return "".join(parts)


def _rect(piece: Piece) -> Markup:
    width = max((piece.end - piece.begin) * LENGTH, THINNEST)
    left = min(piece.begin * LENGTH, LENGTH - width)
    return el("rect", el("title", piece.title), x=left, y=0, width=width, height=100, class_=piece.style)


def _stretched(drawn: list[Markup], marks: Iterable[float], style: str) -> Markup:
    lines = [el("line", x1=at * LENGTH, x2=at * LENGTH, y1=0, y2=100, class_="pause") for at in marks]
    return el(
        "svg", drawn, lines, viewBox=f"0 0 {LENGTH:g} 100", preserveAspectRatio="none", class_=style, aria_hidden="true"
    )
