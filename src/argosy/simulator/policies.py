"""The decisions of a simulated job: the engine's own policy objects, and the words of a command line for them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from argosy.policy.budget import BudgetPolicy
from argosy.policy.recovery import RecoveryPolicy
from argosy.policy.replicas import ReplicaPolicy
from argosy.policy.resize import ResizePolicy
from argosy.policy.retention import RetentionPolicy
from argosy.policy.save import SavePolicy
from argosy.recipe.schema import CheckpointTable
from argosy.simulator.failures import Failures
from argosy.simulator.job import Job


@dataclass(frozen=True)
class Policies:
    """Everything that is asked; the loop itself decides nothing."""

    saves: tuple[SavePolicy, ...]
    """One per tier, the most durable first."""
    recovery: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    resize: ResizePolicy | None = None
    replicas: ReplicaPolicy | None = None
    budget: BudgetPolicy = field(default_factory=BudgetPolicy)


def usual(job: Job, failures: Failures) -> Policies:
    """What the engine would run for `job`: intervals by Daly on each tier, its ladder, its batch rule where the size
    of the batch is known, and a checkpoint kept that is older than silent corruption stays unnoticed.
    """
    recipe = CheckpointTable(snapshot_every_steps=None)  # in memory as often as it costs next to nothing
    in_memory = "memory" in job.saves
    storage = SavePolicy.from_recipe(recipe, over_memory=in_memory)
    if job.replica_groups > 1 and not in_memory:
        storage = replace(storage, failure_share=1 - _outlived(failures))
    saves = (storage, SavePolicy.from_recipe(recipe, "memory")) if in_memory else (storage,)
    groups = job.replica_groups
    elastic = job.batch_sequences is not None
    return Policies(
        saves=saves,
        retention=RetentionPolicy(keep_before_steps=_unnoticed_steps(job, failures)),
        recovery=RecoveryPolicy(
            rungs=("restart_workers", "use_spare", "shrink") if elastic else ("restart_workers", "use_spare"),
            min_world_size=job.model_ranks,
        ),
        resize=ResizePolicy(job.batch_sequences, job.model_ranks, job.model_ranks) if job.batch_sequences else None,
        replicas=ReplicaPolicy(group_ranks=job.gpus // groups) if groups > 1 else None,
    )


MOST_OUTLIVED = 0.95
"""Nobody has shown that replicas outlive more, so storage is never saved for less."""


def _outlived(failures: Failures) -> float:
    """Share of the faults that stop a job after which another replica is still right."""
    stop = [fault for fault in failures.faults if fault.kind != "slow"]
    total = sum(fault.share for fault in stop)
    wrong = sum(fault.share for fault in stop if fault.kind == "silent")
    return min(MOST_OUTLIVED, 1 - wrong / total) if total else 0.0


def _unnoticed_steps(job: Job, failures: Failures) -> int | None:
    """Steps within which 99 of 100 silent corruptions are found; None when there are none.

    Times until one is found are exponential, so the 99th percentile is ln(100) times their mean.
    """
    longest_s = max((fault.detect_s for fault in failures.faults if fault.kind == "silent"), default=0.0)
    return math.ceil(math.log(100) * longest_s / job.step_time_s) or None


def kept_steps(policy: RetentionPolicy, saved: Sequence[int]) -> list[int]:
    """What `policy` has left of states that were saved one after the other, oldest first.

    It forgets what is long gone, so only the last saves are gone through, four times as far as it looks back.
    """
    stride = max(1, (saved[-1] - saved[0]) // len(saved)) if saved else 1
    reach = 4 * max(policy.keep_last, (policy.keep_before_steps or 0) // stride, 16)
    kept: list[int] = []
    for step in saved if policy.keep_every_steps else saved[-reach:]:
        kept.append(step)
        gone = set(policy.surplus(kept))
        kept = [step for step in kept if step not in gone]
    return kept
