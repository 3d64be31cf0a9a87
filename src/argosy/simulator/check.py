"""Whether a job can make progress at all, and the closed forms that say how much."""

import math

from argosy.errors import UsageError
from argosy.policy.save import daly_interval_s, daly_wall_s
from argosy.policy.view import Tier
from argosy.simulator.failures import Failures
from argosy.simulator.job import Job
from argosy.simulator.scenario import Scenario


def stopping_per_s(failures: Failures, nodes: int) -> float:
    """Rate of faults that stop a job at once."""
    return failures.per_s(nodes) * sum(f.share for f in failures.faults if f.kind not in ("slow", "silent"))


def down_s(job: Job, failures: Failures) -> float:
    """Mean time from a fault to the first new step, without lost work: whole job, or all groups when one is lost."""
    stopping = [fault for fault in failures.faults if fault.kind not in ("slow", "silent")]
    total = sum(fault.share for fault in stopping) or 1.0
    detect_s = sum(fault.share * fault.detect_s for fault in stopping) / total
    if job.replica_groups > 1:
        return detect_s + sum(job.restart["rebuild_groups"].values()) + job.rejoin_s
    tier: Tier = "memory" if "memory" in job.saves else "storage"
    return detect_s + job.restart_s("use_spare", tier)


def check_progress(scenario: Scenario) -> None:
    """Raise UsageError when failures come faster than a restart takes, naming the scale from which on they do."""
    job, failures = scenario.job, scenario.failures
    rate = stopping_per_s(failures, job.nodes)
    if not rate:
        return
    mtbf_s, restart_s = 1 / rate, down_s(job, failures)
    if restart_s < mtbf_s:
        return
    limit = int(job.gpus * mtbf_s / restart_s) // job.per_node * job.per_node
    raise UsageError(
        f"the job cannot progress: a restart takes {restart_s:,.0f} s with detection and loading, and failures come "
        f"every {mtbf_s:,.0f} s; so it is from about {max(limit, job.per_node):,} GPUs on",
        where=f"{job.gpus:,} GPUs",
        do="restart faster (--restart), use replica groups (--groups), or fewer GPUs",
    )


def daly_share(interval_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    """Useful ÷ wall time of a job that restarts whole, exact for exponential failures (Daly 2006)."""
    return 1.0 / daly_wall_s(1.0, interval_s, save_s, restart_s, mtbf_s)


def replica_share(rate_per_s: float, stall_s: float, away_s: float, groups: int) -> float:
    """Useful ÷ wall time with replica groups: 1 - λ (stall + away/G), for rare failures (research note 3.8)."""
    return max(0.0, 1.0 - rate_per_s * (stall_s + away_s / groups))


def best_share(job: Job, failures: Failures) -> float:
    """What the closed form says of this job at its best interval, for comparison."""
    rate = stopping_per_s(failures, job.nodes)
    if not rate:
        return 1.0
    save_s = job.saves["storage"].block_s
    interval_s = daly_interval_s(save_s, 1 / rate)
    return daly_share(interval_s, save_s, down_s(job, failures), 1 / rate) if math.isfinite(interval_s) else 1.0
