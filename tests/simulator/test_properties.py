"""What must hold for every job: never more useful than possible, never better when anything gets worse."""

from dataclasses import replace

import pytest
from courses import JOB, KINDS, every_node
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.policy.recovery import RecoveryPolicy
from argosy.policy.save import SavePolicy
from argosy.simulator.course import Course
from argosy.simulator.failures import DAY_S, Failures
from argosy.simulator.job import Job, SaveTimes, restart_phases
from argosy.simulator.outcome import Outcome
from argosy.simulator.policies import Policies

SEEDS = st.integers(0, 2**31)
WHOLE = RecoveryPolicy(rungs=("restart_workers",), restarts_limit=10**9)


def steps(
    seed: int,
    failures: Failures,
    block_s: float = 5.0,
    restart_s: float = 100.0,
    durable_s: float = 0.0,
    every: int = 50,
) -> int:
    """Steps kept of a job that saves at fixed steps and restarts whole, where more trouble can only cost."""
    phases = {rung: {"reschedule": restart_s} for rung in restart_phases(8)} | {"requeue": {}}
    job = Job(80, 3.0, {"storage": SaveTimes(block_s, block_s + durable_s, 20.0)}, phases)
    policies = Policies(saves=(SavePolicy(every_steps=every),), recovery=WHOLE)
    return Course(job, failures, policies, horizon_s=3 * DAY_S, seed=seed).run().steps


@given(SEEDS, st.floats(0.1, 20), st.floats(1.0, 3.0))
@settings(max_examples=40, deadline=None)
def test_more_failures_never_help(seed: int, per_node_day: float, more: float) -> None:
    assert steps(seed, every_node(per_node_day * more)) <= steps(seed, every_node(per_node_day))


@given(SEEDS, st.floats(0.1, 20), st.floats(0, 500), st.floats(0, 500))
@settings(max_examples=40, deadline=None)
def test_a_slower_restart_never_helps(seed: int, per_node_day: float, restart_s: float, more_s: float) -> None:
    slow, fast = (steps(seed, every_node(per_node_day), restart_s=s) for s in (restart_s + more_s, restart_s))
    assert slow <= fast
    late, soon = (steps(seed, every_node(per_node_day, detect_s=s), restart_s=restart_s) for s in (more_s, 0.0))
    assert late <= soon


@given(SEEDS, st.floats(0.1, 20), st.floats(0, 60), st.floats(0, 60))
@settings(max_examples=40, deadline=None)
def test_dearer_or_later_saves_never_help(seed: int, per_node_day: float, block_s: float, more_s: float) -> None:
    dear, cheap = (steps(seed, every_node(per_node_day), block_s=s) for s in (block_s + more_s, block_s))
    assert dear <= cheap
    late, soon = (steps(seed, every_node(per_node_day), block_s=block_s, durable_s=s) for s in (more_s, 0.0))
    # the save at the end is waited for, which may move the last step of the time
    assert late <= soon + 1


@given(SEEDS, st.sampled_from(sorted(KINDS)))
@settings(max_examples=30, deadline=None)
def test_the_same_dice_the_same_course_and_never_more_than_possible(seed: int, name: str) -> None:
    scenario = replace(KINDS[name], horizon_s=DAY_S)

    def run() -> Outcome:
        return Course(scenario.job, scenario.failures, scenario.policies, horizon_s=DAY_S, seed=seed).run()

    one, again = run(), run()
    assert (one.accounts, one.steps, one.record.actions) == (again.accounts, again.steps, again.record.actions)
    assert min(one.accounts.values()) > 0
    assert sum(one.accounts.values()) == pytest.approx(one.paid_s, rel=1e-9)
    job = scenario.job
    if job.batch_sequences is None and job.spot is None:  # then spares are all that is paid and not in the job
        spare_s = job.spares * job.per_node * one.wall_s
        assert one.accounts.get("stability.spare", 0.0) == pytest.approx(spare_s, rel=1e-9)
    assert one.kept_s <= one.wall_s * job.gpus * (1 + 1e-9)
    assert one.useful_share <= one.effective_share + 1e-9 <= 1 + 2e-9 or job.spot is not None
    assert one.wall_s >= min(DAY_S, (job.steps or 10**9) * job.step_time_s)


def test_without_failures_only_start_and_end_cost_anything() -> None:
    job = replace(JOB, spares=0, steps=1000)
    outcome = Course(job, every_node(0.0), Policies(saves=(SavePolicy(),)), horizon_s=DAY_S).run()
    start_s, save_s = sum(job.restart["requeue"].values()), job.saves["storage"].durable_s
    assert outcome.finished
    assert outcome.wall_s == pytest.approx(start_s + 1000 * job.step_time_s + save_s)
    assert outcome.accounts["useful.model_math"] == pytest.approx(1000 * job.step_time_s * job.gpus)
    assert outcome.record.saves == {"storage": 1}
