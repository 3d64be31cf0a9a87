"""The policies that make the work cheapest: knob by knob, on common dice, with the confidence of each difference."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from argosy.errors import UsageError
from argosy.simulator.replicate import Interval, Sample, paired, replicate
from argosy.simulator.scenario import Scenario

Setting = dict[str, float | str]


@dataclass(frozen=True)
class Row:
    """One setting of the knobs."""

    setting: Setting
    useful: Interval
    cost: Interval
    """Of the undisturbed work of the time, in money or device-seconds, delay included."""
    more_than_best: Interval
    """Cost above the best row's, on the same dice; at the best row 0."""
    sample: Sample

    @property
    def ties(self) -> bool:
        """It cannot be told from the best with 95 % confidence."""
        return self.more_than_best.low <= 0


@dataclass(frozen=True)
class Found:
    """Everything that was tried, the cheapest first; `refused` are settings that are no job, and why."""

    rows: list[Row]
    refused: list[tuple[Setting, str]] = field(default_factory=list)

    @property
    def best(self) -> Row:
        return self.rows[0]


def sweep(
    scenario: Scenario,
    knobs: Mapping[str, Sequence[float | str]],
    *,
    replications: int,
    seed: int = 0,
    value_per_day: float = 0.0,
) -> Found:
    """All combinations of the values. Raises UsageError when none of them is a job that can run."""
    tried = [dict(zip(knobs, values, strict=True)) for values in product(*knobs.values())]
    samples, refused = _run(scenario, tried, replications, seed)
    return _found(samples, refused, value_per_day)


def search(
    scenario: Scenario, *, replications: int, seed: int = 0, value_per_day: float = 0.0, rounds: int = 2
) -> Found:
    """From the usual policies, one knob after the other to its best value, until none gets better.

    Knobs: the interval to storage (and memory), spare nodes, replica groups, and the order of the recovery ladder.
    """
    at: Setting = {}
    samples: dict[tuple[tuple[str, float | str], ...], tuple[Setting, Sample]] = {}
    refused: list[tuple[Setting, str]] = []
    for _ in range(rounds):
        before = dict(at)
        for name, values in _knobs(scenario):
            new = [at | {name: value} for value in values]
            missing = [s for s in [at, *new] if _key(s) not in samples]
            done, bad = _run(scenario, missing, replications, seed)
            refused += [b for b in bad if b not in refused]
            samples |= {_key(setting): (setting, sample) for setting, sample in done}
            known = [samples[_key(s)] for s in [at, *new] if _key(s) in samples]
            at = min(known, key=lambda pair: float(np.mean(pair[1].cost_of_work(value_per_day))))[0]
        if at == before:
            break
    return _found(list(samples.values()), refused, value_per_day)


def _knobs(scenario: Scenario) -> Iterator[tuple[str, list[float | str]]]:
    job, policies = scenario.job, scenario.policies
    for policy, name in zip(policies.saves, ("save", "save_memory"), strict=False):
        view = scenario.first_view
        usual_s = policy.interval_s(view) if policy.every_steps is None else policy.every_steps * job.step_time_s
        if np.isfinite(usual_s):
            yield f"{name}.every_s", [round(usual_s * f, 1) for f in (0.25, 0.5, 1.0, 2.0, 4.0)]
    ladder = [n for n in (0, 1, 2, 4, 8, 16, 32, 64) if n <= job.nodes]
    yield "spares", [float(n) for n in ladder]
    if job.replica_groups > 1:
        yield "groups", [float(g) for g in (2, 4, 8, 16, 32, 64) if job.nodes % g == 0 and g <= job.nodes]
    if job.batch_sequences is not None:
        yield "recovery.rungs", ["restart_workers+use_spare+shrink", "restart_workers+shrink+use_spare"]


def _run(
    scenario: Scenario, settings: Sequence[Setting], replications: int, seed: int
) -> tuple[list[tuple[Setting, Sample]], list[tuple[Setting, str]]]:
    done, refused = [], []
    for setting in settings:
        try:
            varied = scenario
            for name, value in setting.items():
                varied = varied.vary(name, value)
            done.append((setting, replicate(varied, replications, seed)))
        except UsageError as error:
            refused.append((setting, str(error)))
    return done, refused


def _found(
    samples: Sequence[tuple[Setting, Sample]], refused: list[tuple[Setting, str]], value_per_day: float
) -> Found:
    if not samples:
        raise UsageError(f"no setting is a job that can run: {refused[0][1]}", where="--sweep")
    costs = [sample.cost_of_work(value_per_day) for _, sample in samples]
    best = min(range(len(costs)), key=lambda i: float(np.mean(costs[i])))
    rows = [
        Row(setting, Interval.of(sample.useful_share), Interval.of(cost), _above(cost, costs[best]), sample)
        for (setting, sample), cost in zip(samples, costs, strict=True)
    ]
    return Found(sorted(rows, key=lambda row: row.cost.mean), refused)


def _above(cost: "np.ndarray", best: "np.ndarray") -> Interval:
    if cost is best:
        return Interval(0.0, 0.0, 0.0)
    finite = np.isfinite(cost) & np.isfinite(best)
    return paired(cost, best) if finite.all() else Interval(float("inf"), float("inf"), float("inf"))


def _key(setting: Setting) -> tuple[tuple[str, float | str], ...]:
    return tuple(sorted(setting.items()))
