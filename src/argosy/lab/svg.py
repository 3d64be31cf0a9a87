"""Charts as inline SVG: axes, points, lines, bands and bars. No script, no font, no network."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from argosy.laws.surfaces import Array

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 34, 52
COLOURS = ("#1f5fa8", "#c8552d", "#2e8b57", "#7d4fa3", "#8a6d1d", "#3b8ea5", "#a83e6c", "#5d5d5d")


@dataclass
class Chart:
    """One chart; marks are added, then :meth:`render` scales them all. Logarithmic axes need positive values."""

    title: str
    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    _marks: list[tuple[str, Array, Array, str, str]] = field(default_factory=list)
    _bands: list[tuple[Array, Array, Array, str]] = field(default_factory=list)

    def points(self, x: Sequence[float] | Array, y: Sequence[float] | Array, colour: str, name: str = "") -> None:
        """Dots."""
        self._marks.append(("dot", np.asarray(x, float), np.asarray(y, float), colour, name))

    def line(self, x: Sequence[float] | Array, y: Sequence[float] | Array, colour: str, name: str = "") -> None:
        """A connected line."""
        self._marks.append(("line", np.asarray(x, float), np.asarray(y, float), colour, name))

    def bar(self, x: float, low: float, high: float, colour: str) -> None:
        """A vertical interval."""
        self._marks.append(("bar", np.array([x, x]), np.array([low, high]), colour, ""))

    def band(self, x: Array, low: Array, high: Array, colour: str) -> None:
        """A shaded area between two curves."""
        self._bands.append((np.asarray(x, float), np.asarray(low, float), np.asarray(high, float), colour))

    def render(self) -> str:
        """The chart as one ``<svg>`` element with a description for readers that cannot see it."""
        xs = np.concatenate([m[1] for m in self._marks] + [b[0] for b in self._bands])
        ys = np.concatenate([m[2] for m in self._marks] + [v for b in self._bands for v in b[1:3]])
        fx, x_ticks = _scale(xs, self.log_x, LEFT, WIDTH - RIGHT)
        fy, y_ticks = _scale(ys, self.log_y, HEIGHT - BOTTOM, TOP)
        out = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(self.title)}" '
            'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12">',
            f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{html.escape(self.title)}</text>',
        ]
        for value, text in x_ticks:
            at = fx(np.array([value]))[0]
            out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>')
            out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>')
        for value, text in y_ticks:
            at = fy(np.array([value]))[0]
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e4e4e4"/>')
            out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{text}</text>')
        middle = (TOP + HEIGHT - BOTTOM) / 2
        x_label = html.escape(self.x_label)
        out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{x_label}</text>')
        out.append(
            f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">'
            f"{html.escape(self.y_label)}</text>"
        )
        for x, low, high, colour in self._bands:
            path = [*zip(fx(x), fy(low), strict=True), *zip(fx(x)[::-1], fy(high)[::-1], strict=True)]
            out.append(f'<polygon points="{_path(path)}" fill="{colour}" fill-opacity="0.18"/>')
        for kind, x, y, colour, name in self._marks:
            out += _mark(kind, fx(x), fy(y), colour, name)
        out += self._legend()
        return "".join([*out, "</svg>"])

    def _legend(self) -> list[str]:
        named = {mark[4]: mark[3] for mark in self._marks if mark[4]}
        return [
            f'<rect x="{WIDTH - 210}" y="{TOP + 4 + 16 * i}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{WIDTH - 195}" y="{TOP + 13 + 16 * i}">{html.escape(name)}</text>'
            for i, (name, colour) in enumerate(named.items())
        ]


def tornado_svg(title: str, middle: float, rows: Sequence[tuple[str, float, float]], unit: str) -> str:
    """Horizontal bars around `middle`, one per input, in the order given."""
    ends = np.array([value for _, low, high in rows for value in (low, high)] + [middle])
    ends = np.where(np.isfinite(ends), ends, middle)
    low, high = float(ends.min()), float(ends.max())
    pad = (high - low) * 0.06 or 1.0
    left, bar = 190, 26
    height = TOP + bar * len(rows) + 40

    def at(value: float) -> float:
        bounded = min(max(value, low - pad), high + pad)
        return left + (bounded - low + pad) / (high - low + 2 * pad) * (WIDTH - left - RIGHT)

    out = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}" '
        'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12">',
        f'<text x="10" y="20" font-size="14" font-weight="bold">{html.escape(title)}</text>',
    ]
    for i, (name, a, b) in enumerate(rows):
        y = TOP + bar * i
        out.append(f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">{html.escape(name)}</text>')
        size = max(at(b) - at(a), 1)
        out.append(f'<rect x="{at(a):.1f}" y="{y + 4}" width="{size:.1f}" height="{bar - 8}" fill="{COLOURS[0]}"/>')
        out.append(f'<text x="{at(b) + 4:.1f}" y="{y + 17}" font-size="10">{a:,.3g} to {b:,.3g} {unit}</text>')
    x = at(middle)
    out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - 30}" stroke="#333"/>')
    out.append(f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle">{middle:,.4g} {unit}</text></svg>')
    return "".join(out)


def page(title: str, sections: Sequence[tuple[str, str]]) -> str:
    """A self-contained HTML page of headed sections; the bodies are HTML already."""
    style = (
        "body{font:15px/1.45 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}svg{max-width:100%}"
        "table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ddd}"
    )
    body = "".join(f"<section><h2>{html.escape(head)}</h2>{content}</section>" for head, content in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{style}</style></head><body><h1>{html.escape(title)}</h1>{body}</body></html>"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _mark(kind: str, x: Array, y: Array, colour: str, name: str) -> list[str]:
    if kind == "dot":
        return [
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}" fill-opacity="0.8"/>'
            for a, b in zip(x, y, strict=True)
        ]
    width = 2 if kind == "line" else 1.2
    return [
        f'<polyline points="{_path(zip(x, y, strict=True))}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
    ]


def _path(points: object) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)  # type: ignore[attr-defined]


class _Axis:
    """Maps values to pixels."""

    def __init__(self, low: float, high: float, log: bool, start: float, end: float):
        self.low, self.high, self.log, self.start, self.end = low, high, log, start, end

    def __call__(self, values: Array) -> Array:
        v = np.log10(values) if self.log else values
        return np.asarray(self.start + (v - self.low) / (self.high - self.low) * (self.end - self.start))


def _scale(values: Array, log: bool, start: float, end: float) -> tuple[_Axis, list[tuple[float, str]]]:
    finite = values[np.isfinite(values)]
    v = np.log10(finite) if log else finite
    low, high = float(v.min()), float(v.max())
    pad = 0.04 * (high - low) or 0.5
    low, high = low - pad, high + pad
    if log and high - low >= 1.2:
        whole = np.arange(np.ceil(low), np.floor(high) + 1)
        step = int(np.ceil(len(whole) / 8))
        ticks = [(10.0**e, f"1e{int(e)}") for e in whole[::step]]
    elif log:
        ticks = [(10.0**e, f"{10.0**e:.3g}") for e in np.linspace(low, high, 5)]
    else:
        raw = (high - low) / 5
        size = 10.0 ** np.floor(np.log10(raw))
        step_size = size * float(min((1, 2, 5, 10), key=lambda m: abs(m * size - raw)))
        ticks = [(t, f"{t:.4g}") for t in np.arange(np.ceil(low / step_size) * step_size, high, step_size)]
    return _Axis(low, high, log, start, end), ticks
