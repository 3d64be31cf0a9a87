"""What each kind of trouble does to a job, and what the policies make of it."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from courses import JOB, OFTEN, WITH_MEMORY, At
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.policy.action import Grow, RollBack, Shrink, UseSpare
from argosy.policy.event import CapacityChanged, RanksLost
from argosy.policy.retention import RetentionPolicy
from argosy.simulator.course import Course
from argosy.simulator.failures import DAY_S, NONE, Fault, with_kind
from argosy.simulator.job import Job, Price, Spot, restart_phases
from argosy.simulator.outcome import Outcome
from argosy.simulator.policies import kept_steps
from argosy.simulator.replicate import replicate
from argosy.simulator.scenario import Scenario, spares_for
from argosy.simulator.search import search
from argosy.simulator.worth import worth


def struck(kind: str, times_s: list[float], job: Job = JOB, horizon_s: float = DAY_S, **fault: float) -> Outcome:
    """A course with faults of one kind at given moments, all at the first node."""
    scenario = Scenario(job, with_kind(NONE, kind, 1.0), horizon_s)  # type: ignore[arg-type]
    one = Fault(**({"name": kind, "kind": kind, "share": 1.0, "detect_s": 30.0} | fault))  # type: ignore[arg-type]
    policies = scenario.policies
    strikes = At(times_s, one)
    return Course(job, scenario.failures, policies, horizon_s=horizon_s, detailed=True, strikes=strikes).run()  # type: ignore[arg-type]


def actions(outcome: Outcome, event: type) -> list[type]:
    return [type(made.action) for made in outcome.record.decisions if isinstance(made.event, event)]


def test_a_slow_machine_holds_all_up_until_it_is_found_and_loses_no_step() -> None:
    outcome = struck("slow", [20_000.0], detect_s=1000.0, slowdown=0.25)
    found_s = 1000.0 * np.log(2)  # the dice of the test are one half
    assert outcome.accounts["comm.exposed.dp"] == pytest.approx(found_s * 0.25 / 1.25 * JOB.gpus, rel=0.02)
    assert outcome.record.lost_steps == 0
    assert actions(outcome, RanksLost)[0] is UseSpare


def test_silent_corruption_goes_back_to_before_it() -> None:
    outcome = struck("silent", [40_000.0], detect_s=4000.0)
    assert actions(outcome, RanksLost) == [RollBack, UseSpare]
    roll_back = next(made.action for made in outcome.record.decisions if isinstance(made.action, RollBack))
    assert isinstance(roll_back, RollBack)
    start_s = sum(JOB.restart["requeue"].values())
    assert 0 < roll_back.step * JOB.step_time_s < 40_000.0 - start_s
    assert outcome.record.lost_steps * JOB.step_time_s > 4000.0 * np.log(2)


def test_a_lost_rack_takes_the_copies_in_memory_unless_they_are_elsewhere() -> None:
    job = replace(JOB, spares=20, saves=WITH_MEMORY)
    together = struck("domain", [50_000.0], job)
    apart = struck("domain", [50_000.0], replace(job, domains_apart=True))
    assert apart.record.lost_steps <= 1 < 20 < together.record.lost_steps
    machine = struck("hardware", [50_000.0], job)
    assert machine.record.lost_steps <= 1
    assert together.record.actions["UseSpare"] == 1  # sixteen nodes at once


def test_a_storage_outage_is_waited_for() -> None:
    short, long = (struck("storage", [50_000.0], repair_median_s=s) for s in (600.0, 6_000.0))
    more_s = long.accounts["stability.reschedule"] - short.accounts["stability.reschedule"]
    assert more_s == pytest.approx(5_400.0 * JOB.gpus, rel=1e-6)


def test_an_elastic_job_shrinks_and_grows_again() -> None:
    job = replace(JOB, spares=0, batch_sequences=1024)
    outcome = struck("hardware", [20_000.0], job, repair_median_s=10_000.0)
    assert actions(outcome, RanksLost) == [Shrink]
    assert Grow in actions(outcome, CapacityChanged)
    worlds = [attempt.world for attempt in outcome.record.attempts]
    assert worlds == [1024, 512, 1024]  # the largest size that deals 1,024 sequences out evenly
    assert outcome.accounts["stability.spare"] > 9_000 * 512
    stays = struck("hardware", [20_000.0], replace(JOB, spares=0), repair_median_s=10_000.0)
    assert stays.kept_s < outcome.kept_s  # half a job is better than none


def test_a_job_without_machines_waits_for_people_and_repair() -> None:
    outcome = struck("hardware", [20_000.0], replace(JOB, spares=0), repair_median_s=10_000.0)
    assert outcome.record.notes["a person was needed"] == 1
    assert outcome.accounts["stability.reschedule"] >= 10_000 * JOB.gpus


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=150),
    st.integers(1, 5),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(2, 9),
)
@settings(max_examples=60)
def test_what_is_kept_is_what_saving_one_by_one_leaves(
    gaps: list[int], last: int, before: int | None, every: int | None
) -> None:
    saved = np.cumsum(gaps).tolist()
    policy = RetentionPolicy(last, every, keep_before_steps=before)
    kept: list[int] = []
    for step in saved:
        kept = [s for s in [*kept, step] if s not in policy.surplus([*kept, step])]
    assert kept_steps(policy, saved) == kept


def test_spot_capacity_is_not_paid_while_it_is_away_and_has_a_break_even_price() -> None:
    job = replace(JOB, spares=0, batch_sequences=1024, prices=(Price(Fraction(2)),), spot=Spot(6.0, 120.0, 4))
    scenario = Scenario(job, NONE, 5 * DAY_S)
    base = replicate(scenario, 6)
    assert base.faults["preemption"] > 20
    assert (base.paid_s < job.gpus * base.wall_s * 0.9999).all()
    found = worth(scenario, base, replications=6)
    assert found.spot_break_even is not None
    assert 0.3 < found.spot_break_even < 1.0
    reserved = replicate(replace(scenario, job=replace(job, spot=None)), 6)
    at_break_even = base.cost_of_work() * found.spot_break_even
    assert at_break_even.mean() == pytest.approx(reserved.cost_of_work().mean(), rel=0.02)


def test_a_day_that_is_worth_something_makes_delay_dear() -> None:
    scenario = Scenario(replace(JOB, prices=(Price(Fraction(2)),)), OFTEN, 2 * DAY_S)
    sample = replicate(scenario, 4)
    more = sample.cost_of_work(1e6) - sample.cost_of_work(0.0)
    assert (more >= 2e6).all()  # two days and the delay
    assert worth(scenario, sample, replications=4).delay.mean > 0


def test_search_finds_spares_and_says_what_cannot_be_told_apart() -> None:
    scenario = Scenario(JOB, OFTEN, 4 * DAY_S)
    found = search(scenario, replications=6, rounds=1)
    costs = [row.cost.mean for row in found.rows]
    assert costs == sorted(costs)
    assert found.best.ties
    assert found.best.setting.get("spares", 0.0) in (8.0, 16.0, 32.0)
    none = next(row for row in found.rows if row.setting.get("spares") == 0.0)
    assert none.cost.mean > 2 * found.best.cost.mean
    dear = next(row for row in found.rows if row.setting.get("spares") == 64.0)
    assert not dear.ties
    assert dear.more_than_best.low > 0
    # the policy's own answer is near the searched one
    assert 4 <= spares_for(JOB, OFTEN) <= 32


def test_restart_phases_grow_with_the_scale_as_measured() -> None:
    in_place = [restart_phases(gpus)["restart_workers"]["reschedule"] for gpus in (2048, 4096, 8192, 16384, 32768)]
    assert in_place == [46.0, 51.0, 54.0, 65.0, 76.0]  # the last goes on with the last slope
    assert restart_phases(64)["requeue"]["reschedule"] == 454.0
