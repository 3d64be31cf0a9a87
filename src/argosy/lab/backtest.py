"""`argosy lab backtest`: forecasts of what has already happened, scored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from argosy.errors import InputError
from argosy.lab.entry import enter, roles_of
from argosy.lab.forecast import Forecaster, forecaster
from argosy.lab.origins import is_isoflop, origins
from argosy.lab.runs import Runs
from argosy.lab.table import Table
from argosy.laws.surfaces import Array

SCHEMA = "argosy.lab.backtest/1"


@dataclass(frozen=True)
class Scored:
    """Forecasts made at one origin: arrays over the withheld runs that were not refused."""

    name: str
    past: Runs
    rest: Runs
    loss: Array
    interval_50: Array
    interval_90: Array
    refused: int

    @property
    def error(self) -> Array:
        """Relative, signed: positive means forecast too high."""
        return self.loss / self.rest.loss - 1

    def covered(self, level: int = 90) -> Array:
        """1 where the run fell into the interval."""
        low, high = (self.interval_90 if level == 90 else self.interval_50).T
        return ((low <= self.rest.loss) & (self.rest.loss <= high)).astype(float)

    @property
    def half_width(self) -> Array:
        """Half the 90 % interval, relative to the loss."""
        return (self.interval_90[:, 1] - self.interval_90[:, 0]) / 2 / self.rest.loss

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        if not len(self.rest):
            return {"name": self.name, "known": len(self.past), "forecasts": 0, "refused": self.refused}
        return {
            "name": self.name,
            "known": len(self.past),
            "forecasts": len(self.rest),
            "refused": self.refused,
            "beyond_largest": float(self.rest.compute_flops.max() / self.past.compute_flops.max()),
            "mean_absolute_error": float(np.abs(self.error).mean()),
            "mean_error": float(self.error.mean()),
            "coverage_90": float(self.covered(90).mean()),
            "coverage_50": float(self.covered(50).mean()),
            "mean_half_width_90": float(self.half_width.mean()),
            "rows": [
                {
                    "N": float(self.rest.parameters[i]),
                    "D": float(self.rest.tokens[i]),
                    "C": float(self.rest.compute_flops[i]),
                    "loss": float(self.rest.loss[i]),
                    "prediction": float(self.loss[i]),
                    "interval_50": self.interval_50[i].tolist(),
                    "interval_90": self.interval_90[i].tolist(),
                }
                for i in range(len(self.rest))
            ],
        }


def score(name: str, past: Runs, rest: Runs, model: Forecaster | None = None) -> Scored:
    """Forecast `rest` from `past` and compare."""
    model = model or forecaster(past, rest)
    said = model.forecast(rest)
    made = np.array([one.status != "refused" for one in said])
    kept = [one for one in said if one.status != "refused"]
    return Scored(
        name,
        past,
        rest.take(made),
        np.array([one.loss for one in kept]),
        np.array([one.interval(0.5) for one in kept]).reshape(-1, 2),
        np.array([one.interval(0.9) for one in kept]).reshape(-1, 2),
        int((~made).sum()),
    )


def rolling(runs: Runs, name: str = "") -> list[Scored]:
    """Every origin of the runs, the latest first; at each, the whole method sees only what was known."""
    axes = ("compute_flops",) if runs.axis or is_isoflop(runs) else ("compute_flops", "parameters")
    scored = []
    for known in origins(runs, axes):
        past = runs.take(known)
        label = f"{name} C ≤ {past.compute_flops.max():.3g}".strip()
        scored.append(score(label, past, runs.take(np.logical_not(known))))
    return scored


def backtest_table(
    table: Table,
    x: Sequence[str],
    y: str,
    *,
    group: Sequence[str] = (),
    train: Sequence[str] = (),
    test: Sequence[str] = (),
    best: bool = False,
) -> list[Scored]:
    """Rolling origins of each group, or one split where `train` and `test` are conditions on rows."""
    roles = roles_of(table, x, y)
    scored: list[Scored] = []
    for key, part in table.groups(group):
        name = ",".join(key.values())
        if train or test:
            past = enter(part.filter(train), roles, best=best).runs
            rest = enter(part.filter(test), roles, best=best, wanted=False).runs
            scored.append(score(name, past, rest))
        else:
            scored += rolling(enter(part, roles, best=best).runs, name)
    if not scored:
        raise InputError(
            "no origin leaves enough runs before it and one after", where=table.where, do="give more levels of compute"
        )
    return scored


def summary(scored: Sequence[Scored]) -> dict[str, float]:
    """Over all forecasts, each origin with equal weight."""
    some = [one for one in scored if len(one.rest)]
    if not some:
        return {"origins": 0}
    return {
        "origins": len(some),
        "forecasts": sum(len(one.rest) for one in some),
        "refused": sum(one.refused for one in scored),
        "mean_absolute_error": float(np.mean([np.abs(one.error).mean() for one in some])),
        "coverage_90": float(np.mean([one.covered(90).mean() for one in some])),
        "coverage_50": float(np.mean([one.covered(50).mean() for one in some])),
        "mean_half_width_90": float(np.mean([one.half_width.mean() for one in some])),
        "median_half_width_90": float(np.median([np.median(one.half_width) for one in some])),
    }


def answer(scored: Sequence[Scored], table: Table) -> dict[str, Any]:
    """The JSON of `argosy lab backtest`."""
    return {
        "schema": SCHEMA,
        "file": table.where,
        "summary": summary(scored),
        "origins": [one.to_json() for one in scored],
    }
