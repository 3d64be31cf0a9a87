"""What things are worth: a minute of restart time, a spare, spot capacity, a day; and what the answer hangs on."""

from dataclasses import dataclass, replace

import numpy as np

from argosy.errors import UsageError
from argosy.simulator.check import best_share
from argosy.simulator.failures import DAY_S
from argosy.simulator.replicate import Interval, Sample, paired, replicate
from argosy.simulator.scenario import Scenario

MONTH_S = 30 * DAY_S
ASSUMED = ("rate", "restart", "detection", "repair", "save", "durable", "restore")
"""Assumptions that are varied, each by a factor of two in both directions."""


@dataclass(frozen=True)
class Swing:
    """How the useful share and the cost move when one assumption is half or twice what was assumed."""

    name: str
    useful: tuple[float, float]
    cost: tuple[float, float]
    """At half, at twice; without end where the job cannot progress."""

    @property
    def width(self) -> float:
        return abs(self.cost[1] - self.cost[0])


def tornado(scenario: Scenario, *, replications: int, seed: int = 0, value_per_day: float = 0.0) -> list[Swing]:
    """One bar per assumption, the widest first, all on the same dice."""

    def at(name: str, factor: float) -> tuple[float, float]:
        try:
            sample = replicate(scenario.vary(name, factor), replications, seed)
        except UsageError:  # it cannot progress
            return 0.0, float("inf")
        return float(np.mean(sample.useful_share)), float(np.mean(sample.cost_of_work(value_per_day)))

    swings = []
    for name in ASSUMED:
        (low_useful, low), (high_useful, high) = at(name, 0.5), at(name, 2.0)
        swings.append(Swing(name, (low_useful, high_useful), (low, high)))
    return sorted(swings, key=lambda swing: -swing.width)


@dataclass(frozen=True)
class Worth:
    """Answers in money (or, without a price, in device-seconds), with 95 % intervals where they are differences."""

    restart_minute_per_month: Interval
    """What each minute less from verdict to the first step saves in 30 days."""
    day_of_delay: float
    """What a day later costs: the value of a day."""
    delay: Interval
    """Days by which failures and saves delay the work of the time."""
    spare_break_even: float | None
    """Price of a waiting GPU ÷ price of a working one up to which one more spare node pays; None without hardware
    faults to spare for."""
    spot_break_even: float | None
    """Spot price ÷ price up to which capacity that is taken back this often pays; None when none is."""
    rates: list["AtRate"]


@dataclass(frozen=True)
class AtRate:
    """The same at another failure rate."""

    factor: float
    useful: float
    cost: float
    experiments: float | None
    """Such jobs that the budget pays; None without one."""
    largest_gpus: int
    """Largest of this scale × 1, 2, 4, … at which half of what is paid is still useful; 0: not even this one."""


def worth(
    scenario: Scenario,
    base: Sample,
    *,
    replications: int,
    seed: int = 0,
    value_per_day: float = 0.0,
    budget: float | None = None,
) -> Worth:
    """All answers for a scenario whose sample is `base`."""
    return Worth(
        restart_minute_per_month=_restart_minute(scenario, base, replications, seed, value_per_day),
        day_of_delay=value_per_day,
        delay=Interval.of((base.cost_of_work(0.0) / _undisturbed(scenario, base) - 1) * scenario.horizon_s / DAY_S),
        spare_break_even=_spare(scenario, base, replications, seed, value_per_day),
        spot_break_even=_spot(scenario, base, replications, seed),
        rates=[_at_rate(scenario, factor, replications, seed, value_per_day, budget) for factor in (0.5, 1.0, 2.0)],
    )


def _undisturbed(scenario: Scenario, base: Sample) -> float:
    """Cost of the work if nothing ever failed and nothing had to be saved, spares included."""
    paid = base.paid_s if base.money is None else base.money
    return float(np.mean(paid / base.wall_s)) * scenario.horizon_s


def _restart_minute(scenario: Scenario, base: Sample, replications: int, seed: int, value_per_day: float) -> Interval:
    less_s = min(60.0, sum(scenario.job.restart["use_spare"].values()))
    if not less_s:
        return Interval(0.0, 0.0, 0.0)
    shorter = replace(scenario, job=scenario.job.restarting_sooner(less_s))
    other = replicate(shorter, replications, seed)
    per_month = MONTH_S / scenario.horizon_s * 60.0 / less_s
    return paired(base.cost_of_work(value_per_day) * per_month, other.cost_of_work(value_per_day) * per_month)


def _spare(scenario: Scenario, base: Sample, replications: int, seed: int, value_per_day: float) -> float | None:
    job = scenario.job
    if job.spares >= job.nodes or not any(f.kind in ("hardware", "domain") for f in scenario.failures.faults):
        return None
    more = replicate(scenario.vary("spares", job.spares + 1), replications, seed)
    # what it brings is worth as many working devices as would bring as much; what it costs itself is left out
    kept, more_kept = (float(np.mean(s.kept_s / s.wall_s)) for s in (base, more))
    return (more_kept / kept - 1) * job.gpus / job.per_node if kept else float("inf")


def _spot(scenario: Scenario, base: Sample, replications: int, seed: int) -> float | None:
    if scenario.job.spot is None:
        return None
    reserved = replicate(replace(scenario, job=replace(scenario.job, spot=None)), replications, seed)
    return float(np.mean(base.useful_share) / np.mean(reserved.useful_share))


def _at_rate(
    scenario: Scenario, factor: float, replications: int, seed: int, value_per_day: float, budget: float | None
) -> AtRate:
    at = scenario.vary("rate", factor)
    try:
        sample = replicate(at, replications, seed)
    except UsageError:
        return AtRate(factor, 0.0, float("inf"), None if budget is None else 0.0, 0)
    cost = float(np.mean(sample.cost_of_work(value_per_day)))
    return AtRate(
        factor=factor,
        useful=float(np.mean(sample.useful_share)),
        cost=cost,
        experiments=None if budget is None else budget / cost,
        largest_gpus=_largest(at),
    )


def _largest(scenario: Scenario) -> int:
    """By the closed form: a course of a job that is 64 times as large takes minutes."""
    found, job = 0, scenario.job
    while best_share(job, scenario.failures) >= 0.5 and job.gpus < 2**24:
        found, job = job.gpus, replace(job, gpus=2 * job.gpus, spares=0)
    return found
