"""`argosy lab fit`: from a table to forecasts, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from argosy.errors import UsageError
from argosy.lab.entry import Entry, Roles, enter, roles_of
from argosy.lab.fit import Fit, bootstrap
from argosy.lab.forecast import Forecast, Forecaster, forecaster
from argosy.lab.next_run import next_run
from argosy.lab.optimum import at_optimum, optimum
from argosy.lab.runs import Runs
from argosy.lab.table import ROLES, Table, number, parse_point

SCHEMA = "argosy.lab.fit/1"
AXES = {"N", "D", "C", "U", "epochs"}


@dataclass(frozen=True)
class Prediction:
    """A forecast with what it rests on."""

    at: dict[str, Any]
    group: dict[str, str]
    target: Runs
    forecast: Forecast
    forecaster: Forecaster

    def to_json(self) -> dict[str, Any]:
        """Keys of the issue: prediction, interval_50, interval_90, form, rests_on, next_run."""
        refused = self.forecast.status == "refused"
        proposal = next_run(self.forecaster, self.target)
        return {
            "at": self.at,
            "group": self.group,
            "status": self.forecast.status,
            "prediction": None if refused else self.forecast.loss,
            "interval_50": None if refused else list(self.forecast.interval(0.5)),
            "interval_90": None if refused else list(self.forecast.interval(0.9)),
            "form": form_json(self.forecaster),
            "rests_on": rests_on(self.forecaster) | {"distance_e_folds": self.forecast.distance},
            "next_run": None if proposal is None else proposal.to_json(),
        }


@dataclass(frozen=True)
class GroupFit:
    """One recipe's runs and everything said about them."""

    group: dict[str, str]
    entry: Entry
    forecaster: Forecaster
    predictions: list[Prediction]


def fit_table(
    table: Table,
    x: Sequence[str],
    y: str,
    *,
    group: Sequence[str] = (),
    predict: Sequence[str] = (),
    best: bool = False,
) -> list[GroupFit]:
    """Fit each group alone and forecast the points of `predict` in it (or in the group that a point names)."""
    roles = roles_of(table, x, y)
    points = [parse_point(text) for text in predict]
    for point in points:
        _check_names(point, roles, group)
    groups = table.groups(group)
    for point in points:
        if not any(_belongs(point, key) for key, _ in groups):
            raise UsageError(f"no group has {point}", where=table.where, do="name values that the file holds")
    return [_fit_group(key, part, roles, [p for p in points if _belongs(p, key)], best) for key, part in groups]


def _fit_group(
    key: dict[str, str], table: Table, roles: Roles, points: Sequence[Mapping[str, str]], best: bool
) -> GroupFit:
    entry = enter(table, roles, best=best)
    targets = [_target(point, entry.runs) for point in points]
    given = [target for target in targets if target is not None]
    model = forecaster(entry.runs, _join(given) if given else None)
    predictions = []
    for point, target in zip(points, targets, strict=True):
        known = target if target is not None else at_optimum(model, number(point, "C"))
        predictions.append(Prediction(_described(known), key, known, model.forecast(known)[0], model))
    return GroupFit(key, entry, model, predictions)


def _check_names(point: Mapping[str, str], roles: Roles, group: Sequence[str]) -> None:
    axes = {roles.axis_kind, roles.axis} if roles.axis else AXES
    for name in point:
        if name not in axes and _role(name) not in axes and name not in group:
            raise UsageError(
                f"{name} in --predict is neither an axis nor a --group column",
                do=f"use {', '.join(sorted(map(str, axes)))}",
            )


def _belongs(point: Mapping[str, str], key: Mapping[str, str]) -> bool:
    return all(point[name] == value for name, value in key.items() if name in point)


def _target(point: Mapping[str, str], runs: Runs) -> Runs | None:
    """The run to forecast; None when only compute is given, so that the optimum has to be found first."""
    named = {_role(name): name for name in point}
    if runs.axis:
        key = named.get(_role(runs.axis), runs.axis)
        if key not in point:
            raise UsageError(f"--predict needs {runs.axis}=…")
        return Runs.on_axis(runs.axis, np.array([number(point, key)]))
    if "N" not in named or "D" not in named:
        if "C" not in named or "N" in named or "D" in named:
            raise UsageError(f"--predict {dict(point)}", do="give N=…,D=… or, for the compute-optimal run, C=… alone")
        return None
    n, d = number(point, named["N"]), number(point, named["D"])
    count = np.median(runs.compute_flops / (runs.parameters * runs.tokens))
    flops = number(point, named["C"]) if "C" in named else count * n * d
    unique = d
    if "U" in named:
        unique = number(point, named["U"])
    elif "epochs" in named:
        unique = d / max(number(point, named["epochs"]), 1.0)
    at_n, at_d, at_c, at_u = (np.array([value]) for value in (n, d, flops, unique))
    return Runs.targets(at_n, at_d, at_c, at_u if runs.unique_tokens is not None else None)


def _role(name: str) -> str:
    return next((role for role, names in ROLES.items() if name == role or name.lower() in names), name)


def _join(targets: Sequence[Runs]) -> Runs:
    n, d, c = (
        np.concatenate([getattr(t, name) for t in targets]) for name in ("parameters", "tokens", "compute_flops")
    )
    return Runs.on_axis(targets[0].axis, n) if targets[0].axis else Runs.targets(n, d, c)


def _described(target: Runs) -> dict[str, Any]:
    if target.axis:
        return {target.axis: float(target.parameters[0])}
    at = {"N": target.parameters, "D": target.tokens, "C": target.compute_flops}
    if target.unique_tokens is not None:
        at["U"] = target.unique_tokens
    return {name: float(value[0]) for name, value in at.items()}


def form_json(model: Forecaster) -> dict[str, Any]:
    """Forms with their weights, the heaviest first."""
    order = np.argsort(-model.weights)
    return {
        "name": model.best.candidate.surface.name,
        "weights": {model.fits[i].candidate.name: round(float(model.weights[i]), 4) for i in order},
    }


def rests_on(model: Forecaster) -> dict[str, Any]:
    """The evidence: runs, their range, and how forecasts from earlier origins fared."""
    runs = model.runs
    axes = (
        {runs.axis: runs.parameters} if runs.axis else {"N": runs.parameters, "D": runs.tokens, "C": runs.compute_flops}
    )
    errors = [float(np.abs(origin.error).mean()) for origin in model.origins]
    return {
        "runs": len(runs),
        "range": {name: [float(values.min()), float(values.max())] for name, values in axes.items()},
        "origins": len(model.origins),
        "forecasts_tested": sum(len(origin.error) for origin in model.origins),
        "mean_error_by_origin": errors,
        "tested_distance_e_folds": model.tested_distance,
        "interval_inflation": model.inflation,
    }


def parameters_json(model: Forecaster, resamples: int) -> dict[str, Any]:
    """Parameters of the best form in its own units, with 80 % bootstrap intervals."""
    best = model.best
    P = bootstrap(best, model.runs, resamples)
    point, draws = _natural(best, best.p[None]), _natural(best, P)
    return {
        name: {"value": float(values[0]), "interval_80": [float(q) for q in np.quantile(draws[name], [0.1, 0.9])]}
        for name, values in point.items()
    }


def _natural(fitted: Fit, P: np.ndarray) -> dict[str, np.ndarray]:
    """E, A, B, exponents … of raw N and D from the centred logs of the fit."""
    names = fitted.candidate.surface.names
    values = {name: P[:, i] for i, name in enumerate(names)}
    out = {"E": np.exp(values["ln_E"])}
    n0, d0 = fitted.centre
    if "ln_A" in values:
        alpha = np.exp(values["ln_alpha"])
        beta = np.exp(values.get("ln_beta", values["ln_alpha"]))
        out |= {"A": np.exp(values["ln_A"] + alpha * n0), "B": np.exp(values["ln_B"] + beta * d0)}
        out |= {"alpha": alpha, "beta": beta, "compute_exponent": alpha * beta / (alpha + beta)}
    else:
        out |= {"compute_exponent": np.exp(values["ln_g"])}
        if "mu" in values:
            drift = values.get("drift", np.zeros(len(P)))
            out |= {"optimal_N_exponent": (1 - drift) / 2, "bowl_curvature": np.exp(values["ln_kappa"])}
            out |= {"bowl_skew": values["skew"]}
    if "ln_R" in values:
        out |= {"repetition_half_life_epochs": np.exp(values["ln_R"])}
    return out


def answer(fits: Sequence[GroupFit], table: Table, *, resamples: int = 1000) -> dict[str, Any]:
    """The JSON of `argosy lab fit`; the first prediction's keys stand at the top as well."""
    groups = []
    for found in fits:
        runs = found.forecaster.runs
        entry: dict[str, Any] = {
            "group": found.group,
            "problems": [problem.to_json() for problem in found.entry.problems],
            "form": form_json(found.forecaster),
            "parameters": parameters_json(found.forecaster, resamples),
            "rests_on": rests_on(found.forecaster),
        }
        if not runs.axis:
            best = optimum(found.forecaster, float(runs.compute_flops.max()))
            entry["optimum_at_largest_compute"] = {
                "C": best.compute_flops,
                "N": best.parameters,
                "D": best.tokens,
                "N_interval_80": list(best.parameters_80),
            }
        groups.append(entry)
    predictions = [prediction.to_json() for found in fits for prediction in found.predictions]
    return (predictions[0] if predictions else {}) | {
        "schema": SCHEMA,
        "file": table.where,
        "predictions": predictions,
        "groups": groups,
    }
