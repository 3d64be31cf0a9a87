"""Each tier has an interval of its own, from what a save costs there and from the failures that it serves."""

from argosy.policy.action import Save, Wait
from argosy.policy.event import StepDone
from argosy.policy.save import BEYOND_MEMORY_SHARE, SavePolicy, daly_interval_s
from argosy.policy.view import View
from argosy.recipe.schema import CheckpointTable

TABLE = CheckpointTable(snapshot_every_steps=None)


def view(step: int, held: int, cost_s: float, step_time_s: float = 1.0) -> View:
    return View(
        now_s=0,
        step=step,
        step_time_s=step_time_s,
        save_cost_s={"memory": cost_s, "storage": 5.0},
        failure_rate_per_s=1e-4,
        committed_step={"memory": held, "storage": 0},
    )


def test_a_snapshot_that_costs_next_to_nothing_is_taken_each_step() -> None:
    policy = SavePolicy.from_recipe(TABLE, "memory")
    assert policy.decide(view(7, 6, cost_s=0.019), StepDone()) == Save("memory")
    assert policy.decide(view(6, 6, cost_s=0.019), StepDone()) == Wait(), "it is there already"


def test_a_dear_one_is_taken_as_daly_says() -> None:
    policy = SavePolicy.from_recipe(TABLE, "memory")
    interval = round(daly_interval_s(0.5, 1e4))
    assert policy.decide(view(interval - 1, 0, cost_s=0.5), StepDone()) == Wait()
    assert policy.decide(view(interval, 0, cost_s=0.5), StepDone()) == Save("memory")


def test_a_number_of_steps_is_kept_to_whatever_it_costs() -> None:
    policy = SavePolicy.from_recipe(CheckpointTable(snapshot_every_steps=3), "memory")
    assert [step for step in range(1, 10) if policy.decide(view(step, 0, 100.0), StepDone()) == Save("memory")] == [
        3,
        6,
        9,
    ]


def test_storage_is_written_less_often_where_memory_serves_most_failures() -> None:
    alone, over_memory = (SavePolicy.from_recipe(TABLE, over_memory=over) for over in (False, True))
    now = view(1, 1, 0.01)
    assert alone.interval_s(now) == daly_interval_s(5.0, 1e4)
    assert over_memory.interval_s(now) == daly_interval_s(5.0, 1e4 / BEYOND_MEMORY_SHARE)
