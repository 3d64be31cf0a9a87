"""The run over its own hours: what took the time when, and under it each attempt as a row of a Gantt chart."""

from collections.abc import Sequence

from argosy.ledger.html.blocks import NOTHING
from argosy.ledger.html.markup import Markup, el
from argosy.ledger.html.scale import ticks
from argosy.ledger.html.strip import Piece, columns, strip
from argosy.ledger.report_model import LAYERS, Report
from argosy.ledger.timeline import TimeLine, Track
from argosy.ledger.waterfall import accounts_of

SHOWN_TRACKS = 40
SMALL = 0.01
"""Accounts below this share of what was paid are drawn as one with the others of their layer."""
_SHADES = ("", " shade1", " shade2", " shade3")
_UNITS = ((86_400, 3 * 86_400, "d"), (3600, 3 * 3600, "h"), (60, 300, "min"), (1, 0, "s"))


def over_time(report: Report) -> Markup:
    """One table, so that all rows share the axis."""
    line = report.timeline
    if not line.length_ns:
        return NOTHING
    layers = _layers(report)
    pauses = [at / line.length_ns for at in line.pauses]
    tracks = line.tracks[-SHOWN_TRACKS:]
    style = {account: style for style, _, accounts in layers for account in accounts}
    rows = [el("tr", el("th", "accounts", scope="row"), el("td", columns(_shares(line, layers), pauses)))]
    rows += [_track(track, line.length_ns, style, pauses) for track in tracks]
    rows.append(el("tr", el("th", ""), el("td", _ruler(line.length_ns))))
    cut = " Dashed lines: pauses that nobody paid for, cut out." if pauses else ""
    hidden = len(line.tracks) - len(tracks)
    last = f" The last {len(tracks)} of {len(line.tracks)} attempts." if hidden else ""
    return el(
        "section",
        el("h2", "Over time"),
        el("p", f"Above, the share of each account; below, what each attempt was in.{cut}{last}", class_="note"),
        el("table", el("tbody", rows), class_="time"),
        el("ul", [_key(style, title) for style, title, _ in reversed(layers)], class_="legend"),
        id="over-time",
    )


def _layers(report: Report) -> list[tuple[str, str, list[str]]]:
    """(style, title, accounts) from the bottom up: useful first, kept before at risk, else the largest darkest."""
    found = []
    for layer in reversed(LAYERS):
        inside = sorted(accounts_of(report, layer), key=lambda item: item[0] == "useful.provisional")
        large = [name for name, line in inside if line.ns >= SMALL * report.paid_ns][: len(_SHADES) - 1]
        small = [name for name, _ in inside if name not in large]
        found += [(f"{layer}{_SHADES[rank]}", name, [name]) for rank, name in enumerate(large)]
        if small:
            title = small[0] if len(small) == 1 else f"{layer}: {len(small)} smaller" if large else layer
            found.append((f"{layer}{_SHADES[len(large)]}", title, small))
    return found


def _shares(line: TimeLine, layers: Sequence[tuple[str, str, list[str]]]) -> list[tuple[str, str, list[float]]]:
    slices = len(line.edges_ns) - 1
    paid = [sum(times[i] for times in line.accounts.values()) or 1 for i in range(slices)]
    return [
        (style, title, [sum(line.accounts[name][i] for name in accounts) / paid[i] for i in range(slices)])
        for style, title, accounts in layers
    ]


def _track(track: Track, length_ns: int, style: dict[str, str], pauses: Sequence[float]) -> Markup:
    pieces = [
        Piece(
            bar.t0_ns / length_ns,
            bar.t1_ns / length_ns,
            style.get(bar.account, bar.account.partition(".")[0]),
            f"{bar.account}: {(bar.t1_ns - bar.t0_ns) / 1e9:,.1f} s",
        )
        for bar in track.bars
    ]
    return el(
        "tr",
        el("th", f"attempt {track.attempt}", scope="row"),
        el("td", strip(pieces, pauses)),
        data_attempt=track.attempt,
    )


def _ruler(length_ns: int) -> Markup:
    """Round times along the axis, few enough for a narrow page."""
    length_s = length_ns / 1e9
    size_s, _, unit = next(row for row in _UNITS if length_s >= row[1])
    marks = ticks(0.0, length_s / size_s, 5)
    spans = [
        el(
            "span",
            f"{mark:g} {unit}",
            style=f"left:{100 * mark * size_s / length_s:.2f}%",
            class_="last" if mark * size_s > 0.97 * length_s and mark else None,
        )
        for mark in marks
    ]
    return el("div", spans, class_="ruler")


def _key(style: str, title: str) -> Markup:
    swatch = el("svg", el("rect", width=10, height=10, class_=style), viewBox="0 0 10 10", aria_hidden="true")
    return el("li", swatch, title)
