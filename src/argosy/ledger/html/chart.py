"""Line charts as SVG that stands alone: no script, colours from CSS classes with the palette as fallback.

The marks of an axis are round numbers and so few that they cannot touch; each line is named at its right end, where
names that would overlap move apart.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from argosy.ledger.html.markup import Markup, el
from argosy.ledger.html.scale import Scale, padded, spread, ticks

WIDTH, HEIGHT = 460.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 96.0, 14.0, 44.0
FONT = 12.0
CHARACTER = 0.6 * FONT
"""Width of a digit, rounded up."""

Format = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    """A line, or with `dots` marks as well."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str
    """CSS class; sets the colour."""
    dots: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with."""

    name: str
    value: float


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_title: str,
    y_title: str,
    x_format: Format,
    y_format: Format,
    levels: Sequence[Level] = (),
    x_from_zero: bool = True,
) -> Markup:
    """A chart of `series`; points that are not finite are left out. Empty when nothing is left."""
    series = [Series(s.name, _finite(s.points), s.style, s.dots) for s in series]
    series = [s for s in series if s.points]
    if not series:
        return Markup("")
    xs = [x for s in series for x, _ in s.points]
    ys = [y for s in series for _, y in s.points] + [level.value for level in levels]
    x = Scale(min([0.0, *xs] if x_from_zero else xs), max(xs) or 1.0, LEFT, WIDTH - RIGHT)
    y = Scale(*padded(ys), HEIGHT - BOTTOM, TOP)
    return el(
        "svg",
        el("title", title),
        _grid(x, y, x_format, y_format),
        el("text", x_title, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle", class_="axis"),
        el("text", y_title, x=LEFT, y=TOP - 3, class_="axis"),
        [_level(level, y) for level in levels],
        [_line(s, x, y) for s in series],
        _names(series, levels, y, y_format),
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        role="img",
        aria_label=title,
        class_="chart",
        font_size=f"{FONT:g}",
        xmlns="http://www.w3.org/2000/svg",
    )


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]


def _grid(x: Scale, y: Scale, x_format: Format, y_format: Format) -> list[Markup]:
    marks = []
    for value in ticks(y.low, y.high, 6):
        at = y(value)
        marks.append(el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        marks.append(el("text", y_format(value), x=LEFT - 6, y=at + 4, text_anchor="end", class_="mark"))
    for value in _x_ticks(x, x_format):
        marks.append(
            el("text", x_format(value), x=x(value), y=HEIGHT - BOTTOM + 18, text_anchor="middle", class_="mark")
        )
    return marks


def _x_ticks(x: Scale, x_format: Format) -> list[float]:
    """As many marks as have room for their text and as much space again."""
    for most in range(6, 1, -1):
        found = ticks(x.low, x.high, most)
        widest = max(len(x_format(value)) for value in found) * CHARACTER
        if len(found) * widest * 1.6 <= x.end - x.begin:
            return found
    return [x.low]


def _line(series: Series, x: Scale, y: Scale) -> list[Markup]:
    places = [(x(px), y(py)) for px, py in series.points]
    path = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in places)
    marks = [el("path", d=path, class_=f"line {series.style}", fill="none")]
    if series.dots or len(places) == 1:
        dots = "".join(f"M{px:.1f} {py:.1f}h0" for px, py in places)
        marks.append(el("path", d=dots, class_=f"dots {series.style}", stroke_linecap="round"))
    return marks


def _level(level: Level, y: Scale) -> Markup:
    at = y(level.value)
    return el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="level", stroke_dasharray="2 4")


def _names(series: Sequence[Series], levels: Sequence[Level], y: Scale, y_format: Format) -> list[Markup]:
    """Name and last value of each line at its right end, with a hair line where it had to move."""
    named = [(s.name, s.points[-1][1], s.style) for s in series]
    named += [(level.name, level.value, "muted") for level in levels]
    places = spread([y(value) for _, value, _ in named], FONT * 1.3, TOP, HEIGHT - BOTTOM)
    marks = []
    for (name, value, style), at in zip(named, places, strict=True):
        right = WIDTH - RIGHT
        marks.append(el("path", d=f"M{right + 1:g} {y(value):.1f}L{right + 7:g} {at:.1f}", class_="lead", fill="none"))
        label = (el("tspan", f"{name} "), el("tspan", y_format(value), class_="value"))
        marks.append(el("text", label, x=right + 9, y=at + 4, class_=f"name {style}"))
    return marks
