"""The decisions of a simulated job: the engine's own policy objects, and the words of a command line for them."""

import math
from dataclasses import dataclass, field

from argosy.policy.budget import BudgetPolicy
from argosy.policy.recovery import RecoveryPolicy
from argosy.policy.replicas import ReplicaPolicy
from argosy.policy.resize import ResizePolicy
from argosy.policy.retention import RetentionPolicy
from argosy.policy.save import SavePolicy
from argosy.policy.view import View
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
    of the batch is known, and as many checkpoints kept as it takes to find one from before a silent corruption.
    """
    outlived = _outlived(job, failures)
    saves = [SavePolicy(failure_share=1 - outlived)]
    if "memory" in job.saves:
        saves.append(SavePolicy(tier="memory", failure_share=outlived))
    view = View(
        now_s=0.0,
        step=0,
        step_time_s=job.step_time_s,
        save_cost_s={tier: save.block_s for tier, save in job.saves.items()},
        failure_rate_per_s=failures.per_s(job.nodes),
    )
    groups = job.replica_groups
    elastic = job.batch_sequences is not None
    return Policies(
        saves=tuple(saves),
        retention=RetentionPolicy(keep_last=kept(saves[0].interval_s(view), failures)),
        recovery=RecoveryPolicy(
            rungs=("restart_workers", "use_spare", "shrink") if elastic else ("restart_workers", "use_spare"),
            min_world_size=job.model_ranks,
        ),
        resize=ResizePolicy(job.batch_sequences, job.model_ranks, job.model_ranks) if job.batch_sequences else None,
        replicas=ReplicaPolicy(group_ranks=job.gpus // groups) if groups > 1 else None,
    )


MOST_OUTLIVED = 0.95
"""Nobody has shown that copies in memory or other replicas outlive more, so storage is never saved for less."""


def _outlived(job: Job, failures: Failures) -> float:
    """Share of the faults that stop a job after which a copy in memory, or another replica, is still there."""
    if "memory" not in job.saves and job.replica_groups == 1:
        return 0.0
    stop = [fault for fault in failures.faults if fault.kind != "slow"]
    total = sum(fault.share for fault in stop)
    gone = sum(f.share for f in stop if f.kind == "silent" or (f.kind == "domain" and not job.domains_apart))
    return min(MOST_OUTLIVED, 1 - gone / total if total else 0.0)


def kept(interval_s: float, failures: Failures) -> int:
    """Checkpoints that reach back beyond 99 of 100 silent corruptions when they are found, and two at least.

    Times until one is found are exponential, so the 99th percentile is ln(100) times their mean.
    """
    longest_s = max((fault.detect_s for fault in failures.faults if fault.kind == "silent"), default=0.0)
    return 2 + (math.ceil(math.log(100) * longest_s / interval_s) if math.isfinite(interval_s) else 0)
