"""A question to the simulator: which job, under which failures, with which policies, for how long."""

import json
import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from argosy.errors import InputError, UsageError
from argosy.policy.codec import from_json
from argosy.policy.save import SavePolicy
from argosy.policy.spares import SparePolicy
from argosy.policy.view import View
from argosy.simulator.failures import Failures
from argosy.simulator.job import Job, SaveTimes
from argosy.simulator.policies import Policies, usual

SAVE_FOR = {"save": "storage", "save_memory": "memory"}
_BY_TYPE = {
    "RecoveryPolicy": "recovery",
    "RetentionPolicy": "retention",
    "ResizePolicy": "resize",
    "ReplicaPolicy": "replicas",
    "BudgetPolicy": "budget",
}


@dataclass(frozen=True)
class Scenario:
    """Everything that decides an outcome but the dice."""

    job: Job
    failures: Failures
    horizon_s: float
    """Longest time; a job with a number of steps may end before."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Policy fields that differ from the usual ones: `save.every_s`, `recovery.rungs`, …"""
    replaced: tuple[Any, ...] = ()
    """Whole policy objects that take the place of the usual ones."""

    def __post_init__(self) -> None:
        if not self.horizon_s > 0:
            raise UsageError(f"{self.horizon_s:g} s to simulate", where="--days", do="give a time above 0")

    @property
    def policies(self) -> Policies:
        """The usual policies of this job, changed as asked. Raises UsageError for what no policy has."""
        found = usual(self.job, self.failures)
        for policy in self.replaced:
            if isinstance(policy, SavePolicy):
                others = tuple(p for p in found.saves if p.tier != policy.tier)
                found = replace(found, saves=tuple(sorted((policy, *others), key=lambda p: p.tier != "storage")))
            else:
                found = replace(found, **{_BY_TYPE[type(policy).__name__]: policy})
        for name, value in self.changes.items():
            found = _changed(found, name, value)
        return found

    @property
    def first_view(self) -> View:
        """What the policies see before the first fault."""
        job = self.job
        return View(
            now_s=0.0,
            step=0,
            step_time_s=job.step_time_s,
            save_cost_s={tier: save.block_s for tier, save in job.saves.items()},
            failure_rate_per_s=self.failures.per_s(job.nodes),
            world_size=job.gpus,
        )

    def vary(self, name: str, value: float | str) -> "Scenario":
        """The same with one knob at `value`: a name of :data:`KNOBS`, or a policy field."""
        if name in KNOBS:
            return KNOBS[name](self, float(value))
        return replace(self, changes=self.changes | {name: value})


def spares_for(job: Job, failures: Failures, confidence: float = 0.99) -> int:
    """How many nodes should wait, by the policy that says so."""
    hardware = [f for f in failures.faults if f.kind in ("hardware", "slow", "silent")]
    share = sum(f.share for f in hardware)
    if not share or not failures.rate_per_node_s:
        return 0
    mean_s = sum(f.share * f.repair_mean_s for f in hardware) / share
    refill_s = mean_s if job.refill_s is None else job.refill_s
    return min(job.nodes, SparePolicy(confidence).spares(job.nodes, failures.rate_per_node_s * share, refill_s))


def read_policy(text: str) -> Any:
    """A policy object from JSON, or from a file of it. Raises UsageError or InputError."""
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text("utf-8")
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=text) from None
    policy = from_json(text)
    if not (is_dataclass(policy) and type(policy).__name__ in (*_BY_TYPE, "SavePolicy")):
        raise UsageError(
            f"{type(policy).__name__} is nothing that a simulated job asks",
            where="--policy",
            do=f"use one of SavePolicy, {', '.join(_BY_TYPE)}",
        )
    return policy


def _changed(policies: Policies, name: str, value: Any) -> Policies:
    """`policies` with field `name`, such as ``save.every_s``, set."""
    owner, _, key = name.partition(".")
    if owner in SAVE_FOR:
        tier = SAVE_FOR[owner]
        if not any(policy.tier == tier for policy in policies.saves):
            raise UsageError(f"the job has no {tier} tier", where=name, do="give --memory-save")
        saves = tuple(_with(p, key, value, name) if p.tier == tier else p for p in policies.saves)
        if key == "every_s":
            saves = tuple(replace(p, every_steps=None) if p.tier == tier else p for p in saves)
        return replace(policies, saves=saves)
    if owner not in _BY_TYPE.values() or not key:
        known = ", ".join([*KNOBS, *(f"{group}.FIELD" for group in (*SAVE_FOR, *_BY_TYPE.values()))])
        raise UsageError(f"unknown knob {name!r}", where="--policy", do=f"use {known}")
    policy = getattr(policies, owner)
    if policy is None:
        raise UsageError(f"this job has no {owner} policy", where=name, do="give --groups or --elastic")
    return replace(policies, **{owner: _with(policy, key, value, name)})


def _with(policy: Any, key: str, value: Any, name: str) -> Any:
    known = {f.name for f in fields(policy)}
    if key not in known:
        raise UsageError(
            f"{type(policy).__name__} has no field {key!r}", where=name, do=f"use {', '.join(sorted(known))}"
        )
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:  # words, such as rungs
            value = value.split("+")
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a whole float is an integer too, and reads better
    hint = get_type_hints(type(policy))[key]
    wanted = {int, float} & {hint, *get_args(hint)}
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if (wanted and not (numeric and 0 <= value < math.inf) and value is not None) or (
        get_origin(hint) is tuple and not isinstance(value, tuple)
    ):
        raise UsageError(f"{value!r} is no {key}", where=name, do="write a number of 0 or more, or words joined by +")
    if float not in wanted and isinstance(value, float):
        raise UsageError(f"{key} counts something: {value:g} is no whole number", where=name)
    return replace(policy, **{key: value})


def _saves(job: Job, **factors: float) -> Job:
    return replace(
        job,
        saves={
            tier: SaveTimes(
                times.block_s * factors.get("block", 1.0),
                max(times.durable_s * factors.get("durable", 1.0), times.block_s * factors.get("block", 1.0)),
                times.restore_s * factors.get("restore", 1.0),
            )
            for tier, times in job.saves.items()
        },
    )


def _job(**how: Any) -> Any:
    def change(scenario: Scenario, value: float) -> Scenario:
        return replace(scenario, job=replace(scenario.job, **{key: make(value) for key, make in how.items()}))

    return change


KNOBS: dict[str, Any] = {
    "spares": _job(spares=int),
    "groups": _job(replica_groups=int),
    "refill_s": _job(refill_s=float),
    "person_s": _job(person_s=float),
    "step_time_s": _job(step_time_s=float),
    "restart_s": lambda s, v: replace(s, job=s.job.with_restart(v)),
    "rate": lambda s, v: replace(s, failures=s.failures.scaled(v)),
    "restart": lambda s, v: replace(s, job=s.job.restart_times(v)),
    "detection": lambda s, v: replace(s, failures=s.failures.detected_in(v)),
    "repair": lambda s, v: replace(s, failures=s.failures.repaired_in(v)),
    "save": lambda s, v: replace(s, job=_saves(s.job, block=v)),
    "durable": lambda s, v: replace(s, job=_saves(s.job, durable=v)),
    "restore": lambda s, v: replace(s, job=_saves(s.job, restore=v)),
}
"""What can be varied besides policy fields. `rate`, `restart`, `detection`, `repair`, `save`, `durable` and `restore`
are factors on what is assumed; the others are values."""
