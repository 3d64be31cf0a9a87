"""The lab's figures: fit with cone, back-test, isoFLOP bowls, tornado."""

from collections.abc import Sequence

import numpy as np

from argosy.lab.answer import GroupFit
from argosy.lab.backtest import Scored
from argosy.lab.dollars import Range
from argosy.lab.forecast import Forecaster
from argosy.lab.optimum import grid
from argosy.lab.origins import is_isoflop
from argosy.lab.runs import Runs
from argosy.lab.svg import COLOURS, Chart, page, table, tornado_svg


def cone(model: Forecaster, reach: float | None = None) -> str:
    """Runs, the fitted front, and its 50 and 90 % cone out to `reach` FLOPs (default: twice what was tested)."""
    runs = model.runs
    first, last = float(runs.compute_flops.min()), float(runs.compute_flops.max())
    end = reach or last * float(np.exp(min(2 * max(model.tested_distance, 0.5), 4.0)))
    budgets = np.geomspace(first, end, 40)
    if runs.axis:
        targets = Runs.on_axis(runs.axis, budgets)
    else:
        picks = []
        for budget in budgets:
            line = grid(runs, float(budget), 81)
            picks.append(line.take(np.array([int(np.argmin(model.loss(line)))])))
        n, d, c = (
            np.concatenate([getattr(p, name) for p in picks]) for name in ("parameters", "tokens", "compute_flops")
        )
        targets = Runs.targets(n, d, c, d if runs.repeats_data else None)
    said = [one for one in model.forecast(targets) if one.status != "refused"]
    x = targets.compute_flops[: len(said)]
    chart = Chart("Fit and cone", runs.axis or "training compute (FLOPs)", "loss (nats per token)", log_x=True)
    for level, colour in ((0.9, COLOURS[0]), (0.5, COLOURS[0])):
        ends = np.array([one.interval(level) for one in said])
        chart.band(x, ends[:, 0], ends[:, 1], colour)
    near = runs.loss < np.quantile(runs.loss, 0.98) + 1e-12
    chart.points(runs.compute_flops[near], runs.loss[near], COLOURS[1], "runs")
    chart.line(x, [one.loss for one in said], COLOURS[0], "optimal curve" if not runs.axis else "fit")
    return chart.render()


def isoflop(model: Forecaster) -> str | None:
    """Loss over model size at each level of compute, with the fitted bowls; None when the runs are no sweeps."""
    runs = model.runs
    if runs.axis or not is_isoflop(runs):
        return None
    levels = [level for level in runs.levels() if len(level) >= 4]
    chart = Chart("IsoFLOP bowls", "parameters", "loss (nats per token)", log_x=True)
    for i, level in enumerate(levels[-8:]):
        colour = COLOURS[i % len(COLOURS)]
        part = runs.take(level)
        low = part.loss < part.loss.min() * 1.15
        budget = float(np.median(part.compute_flops))
        line = grid(runs, budget)
        fitted = model.loss(line)
        inside = (line.parameters >= part.parameters[low].min()) & (line.parameters <= part.parameters[low].max())
        chart.points(part.parameters[low], part.loss[low], colour, f"{budget:.2g} FLOPs")
        if inside.sum() > 1:
            chart.line(line.parameters[inside], fitted[inside], colour)
    return chart.render()


def backtest(scored: Sequence[Scored]) -> str:
    """Forecast error with its 90 % interval, by how far beyond the known runs it was."""
    chart = Chart(
        "Forecasts of what had already happened", "compute beyond the largest known run", "error (%)", log_x=True
    )
    for i, one in enumerate(scored):
        if not len(one.rest):
            continue
        colour = COLOURS[i % len(COLOURS)]
        x = np.maximum(one.rest.compute_flops / one.past.compute_flops.max(), 0.05)
        for at, low, high, truth in zip(x, *one.interval_90.T, one.rest.loss, strict=True):
            chart.bar(float(at), 100 * (low / truth - 1), 100 * (high / truth - 1), colour)
        chart.points(x, 100 * one.error, colour, one.name[:24] if i < 8 else "")
    return chart.render()


def tornado(title: str, rows: Sequence[tuple[str, Range]], unit: str = "$") -> str:
    """Which input moves the answer most."""
    return tornado_svg(title, rows[0][1].value, [(name, r.low, r.high) for name, r in rows], unit)


def fit_page(fits: Sequence[GroupFit], name: str) -> str:
    """Everything `argosy lab fit` says, as a page."""
    sections = []
    for found in fits:
        head = " ".join(f"{key}={value}" for key, value in found.group.items()) or "fit"
        body = cone(found.forecaster)
        bowls = isoflop(found.forecaster)
        rows = [
            [
                " ".join(f"{k}={v:.3g}" for k, v in made.at.items()),
                made.forecast.status,
                *(
                    ("none", "", "")
                    if made.forecast.status == "refused"
                    else (
                        f"{made.forecast.loss:.4f}",
                        " to ".join(f"{v:.4f}" for v in made.forecast.interval(0.5)),
                        " to ".join(f"{v:.4f}" for v in made.forecast.interval(0.9)),
                    )
                ),
            ]
            for made in found.predictions
        ]
        said = table(["at", "status", "loss", "50 %", "90 %"], rows) if rows else ""
        wrong = table(["problem", "rows"], [[p.what, str(p.rows)] for p in found.entry.problems])
        sections.append((head, said + body + (bowls or "") + (wrong if found.entry.problems else "")))
    return page(f"Scaling fit of {name}", sections)


def backtest_page(scored: Sequence[Scored], total: dict[str, float], name: str) -> str:
    """Everything `argosy lab backtest` says, as a page."""
    rows = [[key, f"{value:.4g}"] for key, value in total.items()]
    return page(
        f"Back-test of {name}", [("Errors and intervals", backtest(scored)), ("Over all", table(["", ""], rows))]
    )
