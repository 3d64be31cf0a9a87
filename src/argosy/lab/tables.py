"""From tables of results to the lab's other answers: gaps, schedules, comparisons, replays, values; as plain data."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from argosy.errors import InputError, UsageError
from argosy.lab.answer import fit_table
from argosy.lab.compare import Prior, Verdict, false_discoveries, judge, luck_of_the_best, non_inferior
from argosy.lab.dollars import Front, cheapest_for, front, marginals, sensitivity, tornado
from argosy.lab.entry import enter, roles_of
from argosy.lab.gap import forecast_gap, match
from argosy.lab.schedules import Curve, fit_schedules
from argosy.lab.sequential import watch
from argosy.lab.stopping import Replay, Rule, recorded, replay
from argosy.lab.table import Table, number, parse_point
from argosy.lab.value import Experiment, evsi, rank
from argosy.laws.annealing import Schedule


def gap_answer(
    table: Table, x: Sequence[str], y: str, pair: str, predict: Sequence[str], *, best: bool = False
) -> dict[str, Any]:
    """Gap of two arms on matched cells and its forecast; `pair` is ``column=baseline,variant``."""
    column, equals, names = pair.partition("=")
    arms = names.split(",")
    if not equals or len(arms) != 2:
        raise UsageError(f"--pair {pair}", do="write it like --pair optimizer=adamw,muon")
    runs, problems = [], []
    for arm in arms:
        part = table.filter([f"{column}={arm}"])
        if not len(part):
            raise InputError(f"no row has {column} = {arm}", where=table.where, do="name two arms of the file")
        entry = enter(part, roles_of(part, x, y), best=best, wanted=False)
        runs.append(entry.runs)
        problems += [problem.to_json() | {"arm": arm} for problem in entry.problems]
    gaps = match(*runs)
    points = [parse_point(text) for text in predict]
    n, d = (np.array([number(point, axis) for point in points]) for axis in ("N", "D"))
    said = forecast_gap(gaps, n, d) if points else []
    return {
        "schema": "argosy.lab.gap/1",
        "file": table.where,
        "baseline": arms[0],
        "variant": arms[1],
        "cells": [
            {"N": float(a), "D": float(b), "gap": float(g)}
            for a, b, g in zip(gaps.parameters, gaps.tokens, gaps.gap, strict=True)
        ],
        "predictions": [
            {"at": {"N": float(a), "D": float(b)}, **one.to_json()} for a, b, one in zip(n, d, said, strict=True)
        ],
        "problems": problems,
    }


def schedule_answer(
    table: Table, *, step: str, rate: str, y: str, curve: str, predict: Sequence[str], group: Sequence[str] = ()
) -> dict[str, Any]:
    """Losses along the schedules named in `predict` (their loss column may be empty), from all other curves."""
    results = []
    for key, part in table.groups(group):
        curves, wanted = {}, {}
        for name, rows in ((names[curve], rows) for names, rows in part.groups([curve])):
            order = np.argsort(rows.numbers(step), kind="stable")
            steps, rates, loss = (rows.numbers(column)[order] for column in (step, rate, y))
            if np.isnan(steps).any() or np.isnan(rates).any() or (rates < 0).any() or rates[0] <= 0:
                raise InputError(
                    f"{curve} {name}: a step or rate is missing, or the first rate is 0", where=table.where
                )
            if (np.diff(steps) <= 0).any():
                raise InputError(f"{curve} {name}: steps repeat; two curves under one name?", where=table.where)
            if name in predict:
                wanted[name] = (Schedule(steps, rates), loss)
            elif np.isfinite(loss).all():
                curves[name] = Curve(Schedule(steps, rates), loss)
            else:
                raise InputError(
                    f"{curve} {name} has points without loss", where=table.where, do="--predict it, or drop it"
                )
        missing = set(predict) - set(wanted)
        if missing:
            raise UsageError(
                f"no curve {', '.join(sorted(missing))}", where=table.where, do="give its steps and rates as rows"
            )
        model = fit_schedules(curves)
        for name, (schedule, truth) in wanted.items():
            low, high = model.interval(schedule, 0.9)
            said = model.losses(schedule)
            known = np.isfinite(truth)
            results.append(
                {
                    "group": key,
                    "schedule": name,
                    "final": {"prediction": float(said[-1]), "interval_90": [float(low[-1]), float(high[-1])]},
                    "steps": schedule.steps.tolist(),
                    "prediction": said.tolist(),
                    "mean_error": float(np.abs(said[known] / truth[known] - 1).mean()) if known.any() else None,
                    "rests_on": {"curves": sorted(curves), "withheld_error": model.withheld_error},
                    "form": {
                        fit.law.name: round(float(w), 4) for fit, w in zip(model.fits, model.weights, strict=True)
                    },
                }
            )
    return {"schema": "argosy.lab.schedule/1", "file": table.where, "schedules": results}


def compare_answer(
    table: Table,
    *,
    arm: str,
    y: str,
    baseline: str,
    variant: str | None = None,
    pair: str | None = None,
    prior: Prior | None = None,
    minimum: float = 0.0,
    price_per_run: float | None = None,
    margin: float | None = None,
) -> dict[str, Any]:
    """Verdict on one variant, or on every arm against the baseline with the false-discovery rate held at 10 %.

    With `margin` the question is non-inferiority. The sequential evidence takes runs in the order of the file, in pairs
    of one from each arm; it may be looked at after every pair.
    """
    losses = _arms(table, arm, y, pair)
    for name in (baseline, *([variant] if variant else [])):
        if name not in losses:
            raise InputError(
                f"no row has {arm} = {name}", where=table.where, do=f"one of: {', '.join(list(losses)[:8])}"
            )
    others = [variant] if variant else [name for name, runs in losses.items() if name != baseline and len(runs) > 1]
    verdicts: dict[str, Verdict] = {}
    more: dict[str, dict[str, Any]] = {}
    for name in others:
        a, b = losses[baseline], losses[name]
        if pair:
            shared = [key for key in a if key in b]
            if len(shared) < 2:
                raise InputError(f"{len(shared)} values of {pair} are in both arms", do="compare without --pair")
            a, b = {key: a[key] for key in shared}, {key: b[key] for key in shared}
        verdicts[name] = judge(
            list(a.values()),
            list(b.values()),
            pairs=pair is not None,
            prior=prior,
            minimum=minimum,
            price_per_run=price_per_run,
        )
        looks = watch([x - z for x, z in zip(a.values(), b.values(), strict=False)])
        more[name] = {"e_value": looks.evidence[-1], "could_stop_after_pairs": looks.stopped_at}
        if margin is not None:
            more[name]["p_non_inferior"] = non_inferior(verdicts[name].difference, margin)
    stands = false_discoveries([v.difference.p_value() for v in verdicts.values()])
    rows = [
        {"variant": name, **verdict.to_json(), **more[name], "survives_false_discovery_control": ok}
        for (name, verdict), ok in zip(verdicts.items(), stands, strict=True)
    ]
    return {
        "schema": "argosy.lab.compare/1",
        "file": table.where,
        "baseline": baseline,
        "comparisons": rows,
        "luck_of_the_best_in_standard_errors": luck_of_the_best(len(rows)) if rows else None,
    }


def _arms(table: Table, arm: str, y: str, pair: str | None) -> dict[str, dict[str, float]]:
    """Losses by arm and by seed (or by row, unpaired); copies and missing losses are refused, not averaged."""
    copies = table.find("duplicate_of")
    found: dict[str, dict[str, float]] = {}
    keys = table.column(pair) if pair else [str(line) for line in table.lines]
    for i, (name, loss, key) in enumerate(zip(table.column(arm), table.numbers(y), keys, strict=True)):
        if copies and table.columns[copies][i].strip():
            continue  # the file itself says that this row repeats another
        if not np.isfinite(loss):
            raise InputError(
                f"{arm} {name}: no finite loss", where=f"{table.where}:{table.lines[i]}", do="--where out what diverged"
            )
        runs = found.setdefault(name, {})
        if key in runs:
            raise InputError(f"{arm} {name} has two runs of {pair} {key}", where=f"{table.where}:{table.lines[i]}")
        runs[key] = float(loss)
    return found


def replay_answer(
    table: Table,
    rules: Sequence[Rule],
    *,
    run: str,
    arm: str,
    step: str,
    y: str,
    planned: str | None,
    arms: int,
    campaigns: int,
) -> dict[str, Any]:
    """Replay each rule on recorded curves; steps become fractions of `planned` (default: each run's last step)."""
    rows = {}
    for key, part in table.groups([run]):
        steps, loss = part.numbers(step), part.numbers(y)
        good = np.isfinite(loss) & np.isfinite(steps)
        if not good.any():
            continue
        horizon = float(part.numbers(planned)[0]) if planned else float(steps[good].max())
        rows[key[run]] = (part.column(arm)[0], steps[good].tolist(), loss[good].tolist(), horizon)
    runs = recorded(rows)
    replays: list[Replay] = [replay(rule, runs, arms=arms, campaigns=campaigns) for rule in rules]
    return {
        "schema": "argosy.lab.replay/1",
        "file": table.where,
        "runs": len(runs),
        "rules": [one.to_json() for one in replays],
    }


def worth_answer(
    table: Table,
    x: Sequence[str],
    y: str,
    *,
    at: str,
    price_per_flop: float,
    gain: float,
    experiment_cost: float = 0.0,
    served_tokens: float = 0.0,
    data_price_per_token: float = 0.0,
    batch_tokens: float | None = None,
    critical_batch_tokens: float | None = None,
    noise_sd: float = 0.001,
    best: bool = False,
) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """Marginal values at a point, the gain in dollars with break-evens, and the best size with and without serving."""
    found = fit_table(table, x, y, predict=[at], best=best)[0]
    model, point = found.forecaster, found.predictions[0].target
    loss = float(model.loss(point)[0])
    cost = float(point.compute_flops[0]) * price_per_flop
    draws: Front = front(model)
    value = draws.dollars(gain, loss, cost)
    rows, even = sensitivity(value, experiment_cost)
    bars = tornado(model, point, gain, cost, draws)
    table_of_values = marginals(
        model,
        point,
        price_per_flop,
        data_dollars_per_token=data_price_per_token,
        batch_tokens=batch_tokens,
        critical_batch_tokens=critical_batch_tokens,
    )
    sizes = {}
    for name, served in (("training_only", 0.0), ("with_served_tokens", served_tokens)):
        size = cheapest_for(model, loss, served)
        sizes[name] = {"N": size.parameters, "D": size.tokens, "C": size.train_flops, "serve_flops": size.serve_flops}
    content = {
        "schema": "argosy.lab.worth/1",
        "file": table.where,
        "at": found.predictions[0].at,
        "loss": loss,
        "cost": cost,
        "marginal": [one.to_json() for one in table_of_values],
        "seeds": _seeds_json(gain, noise_sd, value.value / gain),
        "gain": gain,
        "compute_multiplier": draws.multiplier(gain, loss).to_json(),
        "gain_dollars": value.to_json(),
        "sensitivity": [{"price": r.price, "scale": r.scale, "net": r.net.to_json()} for r in rows],
        "break_even_scale": even,
        "optimal_size": sizes,
        "tornado": [{"input": name, **r.to_json()} for name, r in bars],
    }
    return content, bars


def _seeds_json(gain: float, noise_sd: float, dollars_per_nat: float) -> list[dict[str, float]]:
    """What the first seeds per arm are worth when a gain of this size is as likely as a loss."""
    values = [evsi(0.0, abs(gain), noise_sd, seeds) * dollars_per_nat for seeds in (1, 2, 3, 4, 8)]
    return [{"seeds_per_arm": n, "value": v} for n, v in zip((1, 2, 3, 4, 8), values, strict=True)]


EXPERIMENT_COLUMNS = ("name", "gain", "gain_sd", "noise_sd", "seeds", "cost", "dollars_per_nat")


def value_answer(table: Table, budget: float | None) -> dict[str, Any]:
    """Rank candidate experiments; `needs` holds names separated by ;."""
    for column in EXPERIMENT_COLUMNS:
        table.column(column)
    numbers = {column: table.numbers(column) for column in EXPERIMENT_COLUMNS[1:]}
    for column, values in numbers.items():
        if np.isnan(values).any():
            raise InputError(f"column {column} has an empty cell", where=table.where, do="give every number")
    transfer = table.numbers("transfer") if "transfer" in table.columns else np.ones(len(table))
    needs = table.columns.get("needs", [""] * len(table))
    experiments = [
        Experiment(
            name=name,
            gain=float(numbers["gain"][i]),
            gain_sd=float(numbers["gain_sd"][i]),
            noise_sd=float(numbers["noise_sd"][i]),
            seeds=int(numbers["seeds"][i]),
            cost=float(numbers["cost"][i]),
            dollars_per_nat=float(numbers["dollars_per_nat"][i]),
            transfer=float(transfer[i]),
            needs=tuple(need.strip() for need in needs[i].split(";") if need.strip()),
        )
        for i, name in enumerate(table.column("name"))
    ]
    ranked = rank(experiments, budget)
    return {
        "schema": "argosy.lab.value/1",
        "file": table.where,
        "budget": budget,
        "experiments": [one.to_json() | {"spent_before": one.spent_before} for one in ranked],
        "left_out": sorted({one.name for one in experiments} - {one.experiment.name for one in ranked}),
    }
