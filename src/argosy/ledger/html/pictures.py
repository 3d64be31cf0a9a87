"""Pictures of ranks: the icicle of accounts, own time of each rank over the steps, and one step phase by phase."""

from argosy.ledger.cells import duration, percent, seconds
from argosy.ledger.html.blocks import NOTHING
from argosy.ledger.html.markup import Markup, el
from argosy.ledger.html.strip import Piece, strip
from argosy.ledger.report_model import LAYERS, Report
from argosy.ledger.waterfall import LAYER_TITLE, accounts_of

HOTTEST = 2.0
"""Own time in units of the median at which the colour is full."""
PHASE_STYLE = {
    "forward": "useful",
    "backward": "useful shade1",
    "optimizer": "useful shade2",
    "data_wait": "compute",
    "telemetry": "compute shade1",
    "gc": "compute shade2",
    "eval": "compute shade3",
    "ckpt_block": "stability",
}


def icicle(report: Report) -> Markup:
    """Layers above, their accounts below, and who caused the waits under these; widths are exact."""
    whole = report.paid_ns
    if not whole:
        return NOTHING
    at = 0
    top: list[Piece] = []
    middle: list[Piece] = []
    bottom: list[Piece] = []
    for layer in reversed(LAYERS):
        line = report.layers[layer]
        title = f"{LAYER_TITLE.get(layer, layer)}: {seconds(line.ns)} s, {percent(line.share)}"
        if line.ns:
            top.append(Piece(at / whole, (at + line.ns) / whole, layer, title))
        begin = at
        for number, (name, account) in enumerate(accounts_of(report, layer)):
            style = f"{layer}{('', ' shade1', ' shade2', ' shade3')[number % 4]}"
            middle.append(Piece(begin / whole, (begin + account.ns) / whole, style, f"{name}: {seconds(account.ns)} s"))
            if name == "comm.wait_slow_rank":
                inside = begin
                for cause in report.causes:
                    who = "nobody known" if cause.rank is None else f"rank {cause.rank} in {cause.doing}"
                    shade = f"comm{('', ' shade1', ' shade2', ' shade3')[len(bottom) % 4]}"
                    bottom.append(
                        Piece(inside / whole, (inside + cause.ns) / whole, shade, f"{who}: {seconds(cause.ns)} s")
                    )
                    inside += cause.ns
            begin += account.ns
        at += line.ns
    rows = [("layers", top), ("accounts", middle), ("causes", bottom)]
    return el(
        "section",
        el("h2", "Layer, account, cause"),
        el("p", "Widths are shares of what was paid; each row divides the one above it.", class_="note"),
        el(
            "table",
            el("tbody", [el("tr", el("th", name, scope="row"), el("td", strip(p))) for name, p in rows if p]),
            class_="time",
        ),
        id="icicle",
    )


def heat(report: Report) -> Markup:
    """Rows are ranks, colours their own time relative to the median of all."""
    found = report.heat_map
    if found is None or len(found.rows) < 2:
        return NOTHING
    values = sorted(value for row in found.values_s for value in row if value)
    middle = values[len(values) // 2] if values else 1.0
    width = 1 / len(found.steps)
    rows = []
    for name, row in zip(found.rows, found.values_s, strict=True):
        pieces = [
            Piece(
                column * width,
                (column + 1) * width,
                f"heat{_heat(value / middle)}",
                f"{name} from step {found.steps[column]:,}: {duration(value)}",
            )
            for column, value in enumerate(row)
            if value
        ]
        rows.append(el("tr", el("th", name, scope="row"), el("td", strip(pieces))))
    note = (
        f"Median own time of a step, without communication, in attempt {found.attempt}: from {duration(middle)} (pale) "
        f"to {duration(HOTTEST * middle)} and more (dark)."
    )
    return el(
        "section",
        el("h2", "Ranks over time"),
        el("p", note, class_="note"),
        el("table", el("tbody", rows), class_="time heat"),
        id="heat",
    )


def _heat(relative: float) -> int:
    """0 to 5."""
    return min(5, max(0, round((relative - 1) / (HOTTEST - 1) * 5)))


def step(report: Report) -> Markup:
    """One sampled step on each rank, phases in their order."""
    found = report.step_picture
    if found is None or not found.length_ns:
        return NOTHING
    rows = []
    for rank, phases in found.ranks:
        pieces = [
            Piece(
                phase.t0_ns / found.length_ns,
                phase.t1_ns / found.length_ns,
                PHASE_STYLE.get(phase.name, "comm" if phase.name.startswith("comm.") else "unattributed"),
                f"{phase.name}: {duration((phase.t1_ns - phase.t0_ns) / 1e9)}",
            )
            for phase in phases
        ]
        rows.append(el("tr", el("th", f"rank {rank}", scope="row"), el("td", strip(pieces))))
    keys = [("useful", "forward"), ("useful shade1", "backward"), ("useful shade2", "optimizer")]
    keys += [("comm", "communication"), ("compute", "data, journal, collector")]
    names = {phase.name for _, phases in found.ranks for phase in phases}
    keys += [
        (PHASE_STYLE[name], word) for name, word in (("eval", "evaluation"), ("ckpt_block", "save")) if name in names
    ]
    note = f"Step {found.step:,} of attempt {found.attempt}, {duration(found.length_ns / 1e9)} from left to right."
    return el(
        "section",
        el("h2", "One step, phase by phase"),
        el("p", note, class_="note"),
        el("table", el("tbody", rows), class_="time"),
        el("ul", [_key(style, title) for style, title in keys], class_="legend"),
        id="step",
    )


def _key(style: str, title: str) -> Markup:
    swatch = el("svg", el("rect", width=10, height=10, class_=style), viewBox="0 0 10 10", aria_hidden="true")
    return el("li", swatch, title)
