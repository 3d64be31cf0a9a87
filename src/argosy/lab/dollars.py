"""Where the next dollar goes: nats into dollars, and what one more unit of each thing is worth now.

On the front L = E + k·C^-g, so a gain of d nats at loss L is worth the compute multiplier (1 - d/(L - E))^(-1/g). The
answer leans on E and g, which data pin down badly and together; both are drawn jointly from the bootstrap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from argosy.errors import InputError
from argosy.lab.fit import bootstrap
from argosy.lab.forecast import Forecaster
from argosy.lab.optimum import grid
from argosy.lab.runs import Runs
from argosy.laws.surfaces import Array

STEP = 0.01
"""Marginal values are central differences over this step of the natural log."""
PRICES, SCALES = (0.5, 1.0, 2.0), (1.0, 10.0)


@dataclass(frozen=True)
class Range:
    """A value with its 90 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, draws: Array) -> "Range":
        # an observed draw each: between a finite and an infinite one nothing can be interpolated
        low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], method="closest_observation")
        return cls(float(middle), float(low), float(high))

    def times(self, factor: float) -> "Range":
        """Scaled; `factor` is not negative."""
        return Range(self.value * factor, self.low * factor, self.high * factor)

    def to_json(self) -> dict[str, float]:
        """For ``--json``."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Front:
    """Draws (draws,) of floor and exponent of the recipe's own optimal curve."""

    floor: Array
    exponent: Array

    def multiplier(self, gain: float, loss: float) -> Range:
        """Compute that the gain is worth, as a multiple of what the run costs; infinite below the floor."""
        reducible = loss - self.floor
        reachable = reducible > max(gain, 0.0)
        left = np.where(reachable, 1 - gain / np.where(reachable, reducible, 1.0), 1.0)
        return Range.of(np.where(reachable, left ** (-1 / self.exponent), np.inf))

    def dollars(self, gain: float, loss: float, cost: float) -> Range:
        """What a gain of `gain` nats saves on a run that costs `cost` to reach `loss`."""
        m = self.multiplier(gain, loss)
        return Range(*((value - 1) * cost for value in (m.value, m.low, m.high)))


def front(model: Forecaster, draws: int = 400) -> Front:
    """Floor and exponent from bootstraps of the forms, by weight; Chinchilla's exponent is alpha·beta/(alpha+beta)."""
    floors, exponents = [], []
    for i, (weight, fitted) in enumerate(zip(model.weights, model.fits, strict=True)):
        count = round(weight * draws)
        if not count:
            continue
        P = bootstrap(fitted, model.runs, count, seed=i)
        names = fitted.candidate.surface.names
        at = {name: P[:, j] for j, name in enumerate(names)}
        floors.append(np.exp(at["ln_E"]))
        if "ln_g" in at:
            exponents.append(np.exp(at["ln_g"]))
        else:
            alpha, beta = np.exp(at["ln_alpha"]), np.exp(at.get("ln_beta", at["ln_alpha"]))
            exponents.append(alpha * beta / (alpha + beta))
    return Front(np.concatenate(floors), np.concatenate(exponents))


@dataclass(frozen=True)
class Marginal:
    """Loss that one per cent more of a resource takes off, what the per cent costs, and nats per dollar."""

    resource: str
    nats_per_percent: float
    cost_per_percent: float

    @property
    def nats_per_dollar(self) -> float | None:
        """None where the resource costs nothing here."""
        return self.nats_per_percent / self.cost_per_percent if self.cost_per_percent > 0 else None

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "resource": self.resource,
            "nats_per_percent": self.nats_per_percent,
            "cost_per_percent": self.cost_per_percent,
            "nats_per_dollar": self.nats_per_dollar,
        }


def marginals(
    model: Forecaster,
    at: Runs,
    dollars_per_flop: float,
    *,
    data_dollars_per_token: float = 0.0,
    critical_batch_tokens: float | None = None,
    batch_tokens: float | None = None,
) -> list[Marginal]:
    """Marginal values at a present point, best value per dollar first.

    Parameters and tokens pay compute; unique data pays `data_dollars_per_token` and counts only where data repeats.
    A larger batch changes no loss here but costs tokens: examples needed grow as 1 + B/B_crit (McCandlish et al. 2018),
    which is stated as the nats that the extra tokens would have taken off.
    """
    cost = float(at.compute_flops[0]) * dollars_per_flop
    found = [
        Marginal("parameters", _slope(model, at, "parameters"), cost / 100),
        Marginal("tokens", _slope(model, at, "tokens"), cost / 100),
    ]
    if at.unique_tokens is not None and model.runs.repeats_data:
        bill = float(at.unique_tokens[0]) * data_dollars_per_token / 100
        found.append(Marginal("unique data", _slope(model, at, "unique_tokens"), bill))
    if critical_batch_tokens and batch_tokens:
        share = batch_tokens / (critical_batch_tokens + batch_tokens)
        found.append(Marginal("batch", -share * found[1].nats_per_percent, 0.0))
    return sorted(found, key=lambda one: -(one.nats_per_dollar or 0.0))


def _slope(model: Forecaster, at: Runs, axis: str) -> float:
    """Nats taken off per per cent more of one column, the others held."""
    columns = {name: getattr(at, name) for name in ("parameters", "tokens", "compute_flops")}

    def moved(by: float) -> float:
        new = dict(columns)
        unique = at.unique_tokens
        if axis == "unique_tokens":
            assert unique is not None
            unique = unique * np.exp(by)
        else:
            new[axis] = new[axis] * np.exp(by)
            new["compute_flops"] = new["compute_flops"] * np.exp(by)
        return float(model.loss(Runs.targets(**new, unique=unique))[0])

    return (moved(-STEP / 2) - moved(STEP / 2)) / STEP / 100


@dataclass(frozen=True)
class Served:
    """Cheapest model of a quality over its life: trained and served."""

    parameters: float
    tokens: float
    train_flops: float
    serve_flops: float

    @property
    def total_flops(self) -> float:
        """Training and serving."""
        return self.train_flops + self.serve_flops


def cheapest_for(model: Forecaster, target_loss: float, served_tokens: float, serve_price: float = 1.0) -> Served:
    """Least 6·N·D + serve_price·2·N·served over all (N, D) that reach `target_loss` (Sardana et al. 2024).

    `serve_price` is the price of a FLOP when serving over that when training: utilisation differs.
    """
    budgets = np.geomspace(model.runs.compute_flops.min(), model.runs.compute_flops.max() * 1e3, 49)
    lines = [grid(model.runs, float(budget), 161) for budget in budgets]
    loss = np.array([model.loss(line) for line in lines])
    best: Served | None = None
    for i in range(loss.shape[1]):  # one ratio of tokens to parameters: loss falls with compute
        falling = np.minimum.accumulate(loss[:, i])
        if falling[-1] > target_loss:
            continue
        at = float(np.exp(np.interp(-target_loss, -falling, np.log(budgets))))
        n, d = (
            float(np.exp(np.interp(np.log(at), np.log(budgets), np.log([getattr(line, name)[i] for line in lines]))))
            for name in ("parameters", "tokens")
        )
        found = Served(n, d, at, 2 * n * served_tokens * serve_price)
        if best is None or found.total_flops < best.total_flops:
            best = found
    if best is None:
        raise InputError(
            f"loss {target_loss:g} is not reached at {budgets[-1]:.2g} FLOPs",
            do="ask for a higher loss; the fitted floor may lie above it",
        )
    return best


@dataclass(frozen=True)
class Sensitivity:
    """Net value of a decision under one price and scale; the break-even price factor is where it turns 0."""

    price: float
    scale: float
    net: Range


def sensitivity(value: Range, cost: float) -> tuple[list[Sensitivity], float | None]:
    """Net value for price × {0.5, 1, 2} and scale × {1, 10}, and the break-even scale.

    `value` is what the adopted gain saves at scale 1 and price 1; both grow with the price of compute, as does `cost`.
    A larger run is worth more while the experiment costs the same, hence the break-even scale cost/value.
    """
    rows = [
        Sensitivity(p, s, Range(*(p * (s * v - cost) for v in (value.value, value.low, value.high))))
        for p in PRICES
        for s in SCALES
    ]
    return rows, cost / value.value if value.value > 0 else None


def tornado(
    model: Forecaster, at: Runs, gain: float, cost: float, draws: Front | None = None
) -> list[tuple[str, Range]]:
    """Value of a gain when one input moves through its range and the rest stays: price, gain, floor, exponent.

    Widest first. `low` and `high` are the value at the input's 5 % and 95 % (price: half and double; gain: ± a half).
    """
    draws = draws or front(model)
    loss = float(model.loss(at)[0])
    E, g = float(np.median(draws.floor)), float(np.median(draws.exponent))

    def worth(gain: float, E: float, g: float) -> float:
        left = 1 - gain / (loss - E)
        return (left ** (-1 / g) - 1) * cost if left > 0 else np.inf

    middle = worth(gain, E, g)
    low_E, high_E = (float(q) for q in np.quantile(draws.floor, [0.05, 0.95]))
    low_g, high_g = (float(q) for q in np.quantile(draws.exponent, [0.05, 0.95]))
    ends: Sequence[tuple[str, float, float]] = (
        ("price of compute × 0.5 to 2", middle * 0.5, middle * 2),
        ("gain × 0.5 to 1.5", worth(gain * 0.5, E, g), worth(gain * 1.5, E, g)),
        ("floor E", worth(gain, low_E, g), worth(gain, high_E, g)),
        ("exponent g", worth(gain, E, low_g), worth(gain, E, high_g)),
    )
    rows = [(name, Range(middle, min(a, b), max(a, b))) for name, a, b in ends]
    return sorted(rows, key=lambda row: -(row[1].high - row[1].low))
