"""Everything that `argosy simulate` says, as plain data."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from argosy.policy.action import Action
from argosy.policy.codec import to_json
from argosy.simulator.check import best_share
from argosy.simulator.course import Course
from argosy.simulator.outcome import Outcome
from argosy.simulator.replicate import Interval, Sample, replicate
from argosy.simulator.scenario import Scenario
from argosy.simulator.search import Found, search, sweep
from argosy.simulator.worth import Swing, Worth, tornado, worth

SCHEMA = "argosy.simulate/1"
FOR_STUDIES = 16
"""Replications of each point of a study, where differences on common dice need few."""


@dataclass(frozen=True)
class Question:
    """What is asked of a scenario."""

    replications: int = 50
    seed: int = 0
    value_per_day: float = 0.0
    budget: float | None = None
    knobs: dict[str, list[float | str]] | None = None
    """Values to sweep; None: none."""
    searched: bool = False
    studied: bool = False
    """Sensitivity and worth too."""


@dataclass(frozen=True)
class Answer:
    scenario: Scenario
    question: Question
    sample: Sample
    course: Outcome
    """The first replication in every detail: its timeline, its journal."""
    closed_form: float
    """What Daly's form says of a job that restarts whole."""
    found: Found | None
    swings: list[Swing]
    worth: Worth | None

    @property
    def currency(self) -> str | None:
        return self.scenario.job.currency if self.scenario.job.prices else None

    def to_json(self) -> dict[str, Any]:
        """The stable keys of `--json`."""
        job, sample = self.scenario.job, self.sample
        return {
            "schema": SCHEMA,
            "gpus": job.gpus,
            "spares": job.spares,
            "replica_groups": job.replica_groups,
            "failures": {
                "title": self.scenario.failures.title,
                "source": self.scenario.failures.source,
                "mtbf_s": _inverse(self.scenario.failures.per_s(job.nodes)),
            },
            "horizon_s": self.scenario.horizon_s,
            "replications": len(sample),
            "seed": self.question.seed,
            "policies": _policies(self.scenario),
            "useful_share": _interval(Interval.of(sample.useful_share)),
            "effective_share": _interval(Interval.of(sample.effective_share)),
            "useful_share_by_replication": sample.useful_share.tolist(),
            "closed_form_share": self.closed_form,
            "wall_days": _interval(Interval.of(sample.wall_s / 86_400)),
            "finished": sample.finished if job.steps is not None else None,
            "restarts": _interval(Interval.of(sample.restarts)),
            "paid_device_s": float(sample.paid_s.mean()),
            "money": None if sample.money is None else _interval(Interval.of(sample.money)),
            "currency": self.currency,
            "cost_of_work": _interval(Interval.of(sample.cost_of_work(self.question.value_per_day))),
            "accounts_device_s": sample.accounts,
            "faults": sample.faults,
            "actions": sample.actions,
            "notes": sample.notes,
            "found": None if self.found is None else _found(self.found),
            "tornado": [asdict(swing) for swing in self.swings],
            "worth": None if self.worth is None else _worth(self.worth),
        }


def answer(scenario: Scenario, question: Question) -> Answer:
    """Simulate, and study what was asked. Raises UsageError for a job that cannot run or progress."""
    sample = replicate(scenario, question.replications, question.seed)
    course = Course(
        scenario.job,
        scenario.failures,
        scenario.policies,
        horizon_s=scenario.horizon_s,
        seed=question.seed,
        detailed=True,
    ).run()
    few = min(question.replications, FOR_STUDIES)
    how: dict[str, Any] = {"replications": few, "seed": question.seed, "value_per_day": question.value_per_day}
    found = None
    if question.knobs is not None:
        found = sweep(scenario, question.knobs, **how)
    elif question.searched:
        found = search(scenario, **how)
    return Answer(
        scenario=scenario,
        question=question,
        sample=sample,
        course=course,
        closed_form=best_share(scenario.job, scenario.failures),
        found=found,
        swings=tornado(scenario, **how) if question.studied else [],
        worth=worth(scenario, sample, budget=question.budget, **how) if question.studied else None,
    )


def _policies(scenario: Scenario) -> dict[str, Any]:
    found = scenario.policies
    parts: dict[str, Any] = {f.name: getattr(found, f.name) for f in fields(found) if f.name != "saves"}
    plain = {name: None if part is None else _plain(part) for name, part in parts.items()}
    saves = [_plain(policy) | {"interval_s": _finite(policy.interval_s(scenario.first_view))} for policy in found.saves]
    return {"saves": saves, **plain}


def _plain(policy: Any) -> dict[str, Any]:
    return dict(json.loads(to_json(policy)))


def _found(found: Found) -> dict[str, Any]:
    rows = [
        {
            "setting": row.setting,
            "useful_share": _interval(row.useful),
            "cost_of_work": _interval(row.cost),
            "more_than_best": _interval(row.more_than_best),
            "ties": row.ties,
        }
        for row in found.rows
    ]
    return {"rows": rows, "refused": [{"setting": setting, "why": why} for setting, why in found.refused]}


def _worth(found: Worth) -> dict[str, Any]:
    return asdict(found) | {
        "restart_minute_per_month": _interval(found.restart_minute_per_month),
        "delay": _interval(found.delay),
    }


def _interval(interval: Interval) -> dict[str, float | None]:
    return {"mean": _finite(interval.mean), "low": _finite(interval.low), "high": _finite(interval.high)}


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _inverse(rate: float) -> float | None:
    return 1 / rate if rate else None


def decisions(course: Outcome) -> Sequence[tuple[float, str, Action]]:
    """When what was decided: (seconds, cause, action), the waits left out."""
    return [(d.t_s, d.what, d.action) for d in course.record.decisions if type(d.action).__name__ != "Wait"]
