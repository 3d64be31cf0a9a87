"""The save interval is the one that loses least, and saves come where it says."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.policy.action import Save, Wait
from argosy.policy.event import BeforeStep, StepDone
from argosy.policy.retention import RetentionPolicy
from argosy.policy.save import SavePolicy, daly_interval_s, daly_wall_s
from argosy.policy.view import View
from argosy.recipe.schema import CheckpointTable


@given(st.floats(0.01, 1e3), st.floats(1.0, 1e7), st.floats(0.0, 1e3))
def test_no_other_interval_is_faster(cost_s: float, mtbf_s: float, restart_s: float) -> None:
    cost_s = min(cost_s, 20 * mtbf_s)  # beyond, e^(w/M) leaves the range in which walls can be compared
    best_s = daly_interval_s(cost_s, mtbf_s)
    restart_s = min(restart_s, mtbf_s)
    wall_s = daly_wall_s(1.0, best_s, cost_s, restart_s, mtbf_s)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert daly_wall_s(1.0, best_s * factor, cost_s, restart_s, mtbf_s) >= wall_s * (1 - 1e-9)


def test_rare_failures_give_young_and_the_published_figures() -> None:
    # Young 1974: sqrt(2 w M)
    assert daly_interval_s(1.0, 1e9) == pytest.approx(math.sqrt(2e9), rel=1e-4)
    # our table of the formula: 16,384 GPUs at 3.09 h and w = 10 s, 100,000 at 0.51 h
    assert daly_interval_s(10, 3.09 * 3600) / 60 == pytest.approx(7.8, abs=0.06)
    hours = 0.51 * 3600
    assert 1 / daly_wall_s(1, daly_interval_s(10, hours), 10, 600, hours) == pytest.approx(0.647, abs=0.002)


def saved_steps(policy: SavePolicy, steps: int, step_time_s: float | None, **view: object) -> list[int]:
    committed = 0
    saved = []
    for step in range(1, steps + 1):
        now = View(
            now_s=step * (step_time_s or 0),
            step=step,
            step_time_s=step_time_s,
            committed_step={"storage": committed} if committed else {},
            **view,  # type: ignore[arg-type]
        )
        if policy.decide(now, StepDone()) == Save("storage"):
            saved.append(step)
            committed = step
    return saved


def test_fixed_steps_and_seconds() -> None:
    assert saved_steps(SavePolicy(every_steps=4), 13, None) == [4, 8, 12]
    assert saved_steps(SavePolicy(every_s=10.0), 20, 2.0) == [5, 10, 15, 20]
    # 2.5 steps: the nearer whole number is taken, never a drift
    assert saved_steps(SavePolicy(every_s=10.0), 12, 4.0) == [2, 4, 6, 8, 10, 12]
    assert saved_steps(SavePolicy(every_s=1.0), 3, 60.0) == [1, 2, 3]


def test_daly_by_default() -> None:
    interval_s = daly_interval_s(2.0, 1000.0)
    steps = saved_steps(SavePolicy(), 200, 1.0, save_cost_s={"storage": 2.0}, failure_rate_per_s=1 / 1000)
    assert steps[0] == round(interval_s)
    assert {b - a for a, b in pairwise(steps)} == {round(interval_s)}


def test_unknown_cost_rate_or_time_never_saves_by_guess() -> None:
    assert saved_steps(SavePolicy(), 50, 1.0) == []
    assert saved_steps(SavePolicy(), 50, 1.0, save_cost_s={"storage": 1.0}) == []
    assert saved_steps(SavePolicy(every_s=1.0), 50, None) == []


def test_other_events_and_saved_steps_are_left_alone() -> None:
    view = View(now_s=0, step=4, committed_step={"storage": 4})
    assert SavePolicy(every_steps=4).decide(view, StepDone()) == Wait()
    assert SavePolicy(every_steps=4).decide(View(now_s=0, step=4), BeforeStep(0, None, 0.0)) == Wait()


def test_from_recipe() -> None:
    assert SavePolicy.from_recipe(CheckpointTable(every_s=3.0)) == SavePolicy(every_s=3.0)
    assert RetentionPolicy.from_recipe(CheckpointTable(keep_every_steps=100)) == RetentionPolicy(2, 100)


@given(st.sets(st.integers(0, 300)), st.integers(1, 5), st.none() | st.integers(1, 50))
def test_retention_keeps_the_newest_and_milestones(steps: set[int], last: int, every: int | None) -> None:
    gone = RetentionPolicy(last, every).surplus(steps)
    kept = steps - set(gone)
    assert set(gone) <= steps
    assert set(sorted(steps)[-last:]) <= kept
    assert all(every is None or step % every for step in gone)
    assert len(kept) <= last + (0 if every is None else sum(step % every == 0 for step in steps))
