"""One layout in full for a terminal: terms of time and memory, exact counts of ranks, a picture of the pipeline."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from argosy.layout.inventory import Inventory
from argosy.layout.picture import LEGEND, Picture
from argosy.planner.detail import Detail
from argosy.planner.render import describe, terms_table

STYLES = {"F": "cyan", "B": "green", "I": "green", "W": "magenta"}
"""Colour of each kind of work."""
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def print_detail(detail: Detail, console: Console | None = None) -> None:
    """The answer of `argosy plan explain`."""
    console = console or Console()
    p, i = detail.found.prediction, detail.index
    low, high = p.interval_s
    console.print(f"{describe(detail.layout)}: step {p.step_time_s[i]:.4g} s [{low[i]:.3g}–{high[i]:.3g}], "
                  f"played {detail.played_s:.4g} s, binding: {p.binding(i)}")  # fmt: skip
    table = Table(title="time of a step", title_justify="left")
    for name in ("term", "s", "share"):
        table.add_column(name, justify="left" if name == "term" else "right")
    for name, seconds in detail.time_terms.items():
        table.add_row(name, f"{seconds:.4g}", f"{seconds / p.step_time_s[i]:.1%}")
    console.print(table)
    console.print(terms_table("memory of the fullest rank, as predicted", detail.memory_terms))
    beside = max(1, (console.width - 16) // 17)
    for start in range(0, len(detail.inventories), beside):
        console.print(ranks_table(detail.inventories[start : start + beside]))
    for counted in detail.inventories[:1]:
        console.print(collectives_table(counted))
    if detail.picture is not None:
        console.print(f"pipeline ({LEGEND}):")
        for line in picture_lines(detail.picture):
            console.print(line, no_wrap=True, crop=True)
        _print_balance(detail, console)


def ranks_table(inventories: Sequence[Inventory]) -> Table:
    """What ranks hold, compute and send, exactly: a column for each, so that few of them fit a narrow terminal."""
    table = Table(title="exact, per rank and step", title_justify="left")
    table.add_column("rank")
    for counted in inventories:
        table.add_column(str(counted.rank), justify="right")
    places = (
        " ".join(f"{axis} {index}" for axis, index in counted.coordinates.items() if index) or "first"
        for counted in inventories
    )
    table.add_row("place", *places)
    table.add_row("blocks", *(blocks_in_words(counted.blocks) for counted in inventories))
    table.add_row("parameters", *(f"{counted.parameters:,}" for counted in inventories))
    held = {"weights": "parameter", "gradients": "gradient", "optimizer": "optimizer", "activations": "activation"}
    for label, name in held.items():
        sizes = (getattr(counted, f"{name}_bytes") for counted in inventories)
        table.add_row(label, *map(in_units, sizes))
    table.add_row("TFLOP", *(f"{counted.flops.total / 1e12:.4g}" for counted in inventories))
    for axis in dict.fromkeys(axis for counted in inventories for axis in counted.by_axis()):
        table.add_row(f"sent on {axis}", *(in_units(counted.by_axis().get(axis, 0)) for counted in inventories))
    return table


def collectives_table(counted: Inventory) -> Table:
    """Every collective of a rank."""
    table = Table(title=f"collectives of rank {counted.rank}, exact", title_justify="left")
    for name in ("axis", "op", "count", "bytes each", "", "what"):
        table.add_column(name, justify="right" if name in ("count", "bytes each") else "left")
    for c in counted.collectives:
        table.add_row(c.axis, c.op, f"{c.count:,}", f"{c.bytes:,}", in_units(c.bytes), c.what)
    return table


def picture_lines(picture: Picture) -> list[Text]:
    """One line per pipeline rank, work coloured by kind."""
    lines = []
    for rank, line in enumerate(picture.lines()):
        text = Text(f"  {rank:>3} {line}")
        for letter, style in STYLES.items():
            text.highlight_regex(rf"(?i){letter}\d", style)
        lines.append(text)
    return lines


def in_units(size: int) -> str:
    """Bytes for people."""
    for name, unit in _UNITS:
        if size >= unit:
            return f"{size / unit:,.2f} {name}"
    return f"{size} B"


def blocks_in_words(blocks: tuple[int, ...]) -> str:
    """``0–3, 12–15``: runs of neighbours."""
    runs: list[list[int]] = []
    for block in sorted(blocks):
        if runs and block == runs[-1][1] + 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)


def _print_balance(detail: Detail, console: Console) -> None:
    """How uneven the stages are, and what would even them out."""
    work = detail.stage_work
    mean = sum(work) / len(work)
    console.print(f"busiest stage: {max(work):.2f} blocks of work, {max(work) / mean - 1:.0%} above the mean", end="")
    if max(detail.balanced_work) < max(work):
        console.print(f"; with layout.stage_layers = {list(detail.balanced)} {max(detail.balanced_work):.2f}", end="")
    console.print()
