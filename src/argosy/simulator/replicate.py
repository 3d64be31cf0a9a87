"""Many courses of one scenario, each with its own dice, and how sure their mean is."""

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # type: ignore[import-untyped]

from argosy.simulator.check import check_progress
from argosy.simulator.course import Course
from argosy.simulator.outcome import Outcome
from argosy.simulator.scenario import Scenario

Floats = NDArray[np.float64]

WORTH_A_POOL_S = 2.0
"""Expected work above which it is divided over processes."""


@dataclass(frozen=True)
class Interval:
    """A mean and where it lies with 95 % confidence (Student's t)."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Floats) -> "Interval":
        """Unknown width from a single value: the whole line."""
        mean = float(np.mean(values))
        if len(values) < 2:
            return cls(mean, -math.inf, math.inf)
        half = float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / math.sqrt(len(values)))
        return cls(mean, mean - half, mean + half)

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Sample:
    """Outcomes of a scenario by replication, without their details."""

    scenario: Scenario
    useful_share: Floats
    effective_share: Floats
    wall_s: Floats
    paid_s: Floats
    kept_s: Floats
    money: Floats | None
    """None when no price is known."""
    restarts: Floats
    accounts: dict[str, float]
    """Mean device-seconds."""
    faults: dict[str, float]
    """Mean counts."""
    actions: dict[str, float]
    notes: dict[str, float]
    finished: float
    """Share of replications in which all work was done."""

    def __len__(self) -> int:
        return len(self.useful_share)

    def cost_of_work(self, value_per_day: float = 0.0) -> Floats:
        """What the work that the job would do undisturbed in the first replication's time costs, with delay.

        Money, or without a price device-seconds. Replications that keep nothing cost without end.
        """
        wanted_s = self.scenario.job.gpus * self.scenario.horizon_s
        paid = self.paid_s if self.money is None else self.money
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(
                self.kept_s > 0, (paid + value_per_day * self.wall_s / 86_400) * wanted_s / self.kept_s, np.inf
            )


def replicate(scenario: Scenario, replications: int, seed: int = 0, processes: int | None = None) -> Sample:
    """Run `replications` courses with seeds `seed`, `seed` + 1, …; the same seeds meet the same faults.

    Raises UsageError for a job that cannot make progress.
    """
    check_progress(scenario)
    if replications < 1:
        raise ValueError(f"{replications} replications")
    seeds = range(seed, seed + replications)
    run = _Run(scenario)
    workers = processes or min(os.cpu_count() or 1, 2)
    outcomes: list[Outcome]
    if workers > 1 and replications > 1 and _guess_s(scenario) * replications > WORTH_A_POOL_S:
        with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
            outcomes = list(pool.map(run, seeds, chunksize=max(1, replications // (4 * workers))))
    else:
        outcomes = [run(s) for s in seeds]
    return _sample(scenario, outcomes)


@dataclass(frozen=True)
class _Run:
    """One course; an object so that it can be sent to a process."""

    scenario: Scenario

    def __call__(self, seed: int) -> Outcome:
        s = self.scenario
        return Course(s.job, s.failures, s.policies, horizon_s=s.horizon_s, seed=seed).run()


def _guess_s(scenario: Scenario) -> float:
    """About what a course takes to simulate: 0.1 ms per fault."""
    return 1e-4 * scenario.failures.per_s(scenario.job.nodes) * scenario.horizon_s


def _sample(scenario: Scenario, outcomes: Sequence[Outcome]) -> Sample:
    def column(of: Callable[[Outcome], float]) -> Floats:
        return np.array([of(outcome) for outcome in outcomes], float)

    def means(of: Callable[[Outcome], dict[str, float] | Counter[str]]) -> dict[str, float]:
        total: Counter[str] = Counter()
        for outcome in outcomes:
            total.update(of(outcome))
        return {name: value / len(outcomes) for name, value in sorted(total.items())}

    return Sample(
        scenario=scenario,
        useful_share=column(lambda o: o.useful_share),
        effective_share=column(lambda o: o.effective_share),
        wall_s=column(lambda o: o.wall_s),
        paid_s=column(lambda o: o.paid_s),
        kept_s=column(lambda o: o.kept_s),
        money=column(lambda o: float(o.money or 0)) if scenario.job.prices else None,
        restarts=column(lambda o: o.record.restarts),
        accounts=means(lambda o: o.accounts),
        faults=means(lambda o: o.record.faults),
        actions=means(lambda o: o.record.actions),
        notes=means(lambda o: o.record.notes),
        finished=float(np.mean([o.finished for o in outcomes])),
    )


def paired(ours: Floats, theirs: Floats) -> Interval:
    """The mean of `ours` less `theirs` of the same dice."""
    count = min(len(ours), len(theirs))
    return Interval.of(ours[:count] - theirs[:count])
