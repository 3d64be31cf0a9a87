"""What the lab's answers look like on a terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table as Grid


def print_fit(content: dict[str, Any], console: Console | None = None) -> None:
    """Forecasts first, then what they rest on, then what was wrong with the data."""
    console = console or Console()
    if content["predictions"]:
        grid = _grid("forecast at", "loss", "90 % interval", "±", "status", "rests on")
        for made in content["predictions"]:
            grid.add_row(*_prediction_cells(made))
        console.print(grid)
        proposal = content["predictions"][0]["next_run"]
        if proposal:
            console.print(
                f"next run that narrows the first interval most per cost: {_point(proposal)} "
                f"→ {proposal['interval_shrinks_to']:.0%} of its width"
            )
    for found in content["groups"]:
        name = " ".join(f"{key}={value}" for key, value in found["group"].items())
        rests = found["rests_on"]
        console.print(
            f"[bold]{name or 'fit'}[/bold]: {found['form']['name']} on {rests['runs']} runs; "
            f"{rests['forecasts_tested']} forecasts at {rests['origins']} earlier origins, "
            f"tested to {rests['tested_distance_e_folds']:.1f} e-folds beyond the data"
        )
        for parameter, value in found["parameters"].items():
            low, high = value["interval_80"]
            console.print(f"  {parameter} {value['value']:.4g}  (80 %: {low:.4g} to {high:.4g})")
        for problem in found["problems"]:
            console.print(f"  [yellow]{problem['kind']}[/yellow]: {problem['what']}")


def print_backtest(content: dict[str, Any], console: Console | None = None) -> None:
    """One line per origin and the summary."""
    console = console or Console()
    grid = _grid("origin", "known", "forecasts", "× largest", "error", "90 % covered", "mean ±")
    for one in content["origins"]:
        if not one["forecasts"]:
            grid.add_row(one["name"], str(one["known"]), f"0 ({one['refused']} refused)", "", "", "", "")
            continue
        grid.add_row(
            one["name"],
            str(one["known"]),
            str(one["forecasts"]) + (f" ({one['refused']} refused)" if one["refused"] else ""),
            f"{one['beyond_largest']:.1f}",
            f"{one['mean_absolute_error']:.3%}",
            f"{one['coverage_90']:.0%}",
            f"{one['mean_half_width_90']:.3%}",
        )
    console.print(grid)
    total = content["summary"]
    if total["origins"]:
        console.print(
            f"{total['forecasts']} forecasts at {total['origins']} origins: "
            f"mean error {total['mean_absolute_error']:.3%}, "
            f"90 % interval held {total['coverage_90']:.1%} (50 %: {total['coverage_50']:.1%}), "
            f"mean half width {total['mean_half_width_90']:.3%}"
        )


SHOWN = {
    "comparisons": ("variant", "text", "gain", "interval_90", "shrunk_gain", "p_t", "seeds"),
    "rules": ("rule", "trusted", "kept_best", "cost_share", "reason"),
    "schedules": ("group", "schedule", "final", "mean_error", "form"),
}
"""Columns on a terminal of records that have more; all are in ``--json``."""


def print_plain(content: dict[str, Any], console: Console | None = None) -> None:
    """Any other answer: lists of records as tables, the rest as lines; long lists of numbers stay in ``--json``."""
    console = console or Console()
    for key, value in content.items():
        if key == "schema" or value is None:
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            names = SHOWN.get(key) or [name for name, cell in value[0].items() if _short(cell) is not None]
            grid = _grid(*(name.replace("_", " ") for name in names))
            for record in value:
                grid.add_row(*(_short(record.get(name)) or "" for name in names))
            console.print(f"[bold]{key.replace('_', ' ')}[/bold]")
            console.print(grid)
        elif (text := _short(value)) is not None:
            console.print(f"{key.replace('_', ' ')}: {text}")


def _short(value: Any) -> str | None:
    """A cell's text; None for what belongs into ``--json`` only."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        parts = [(key, _short(cell)) for key, cell in value.items()]
        return " ".join(f"{key}={text}" for key, text in parts if text) if len(parts) <= 5 else None
    if isinstance(value, list):
        return " to ".join(_short(cell) or "" for cell in value) if len(value) <= 3 else None
    return "" if value is None else str(value)


def _prediction_cells(made: dict[str, Any]) -> list[str]:
    rests = f"{made['rests_on']['runs']} runs, {made['rests_on']['origins']} origins"
    where = " ".join([*(f"{k}={v}" for k, v in made["group"].items()), _point(made["at"])])
    if made["prediction"] is None:
        return [where, "none", "", "", "refused: too far beyond the tested distance", rests]
    low, high = made["interval_90"]
    half = (high - low) / 2 / made["prediction"]
    return [where, f"{made['prediction']:.4f}", f"{low:.4f} to {high:.4f}", f"{half:.2%}", made["status"], rests]


def _point(at: dict[str, Any]) -> str:
    return " ".join(f"{key}={value:.3g}" for key, value in at.items() if key in ("N", "D", "C", "U") or len(at) == 1)


def _grid(*columns: str) -> Grid:
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        grid.add_column(name, overflow="fold")
    return grid
