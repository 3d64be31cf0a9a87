"""A lost replica costs the others a step as long as enough are left; and a save policy that says where it is due."""

from hypothesis import given
from hypothesis import strategies as st

from argosy.policy.action import RebuildGroups, Save, Wait
from argosy.policy.event import RanksLost, StepDone
from argosy.policy.replicas import ReplicaPolicy
from argosy.policy.save import SavePolicy, daly_interval_s
from argosy.policy.view import View


def test_survivors_go_on_while_enough_groups_are_left() -> None:
    policy = ReplicaPolicy(group_ranks=4, min_groups=2)
    four = View(now_s=0, step=1, world_size=16)
    assert policy.decide(four, RanksLost((5,))) == RebuildGroups()
    assert policy.decide(four, RanksLost((4, 7))) == RebuildGroups()  # one group
    assert policy.decide(four, RanksLost((0, 4, 8))) == Wait()  # one would be left
    assert policy.decide(View(now_s=0, step=1, world_size=8), RanksLost((5,))) == Wait()  # two were away already
    assert policy.decide(four, StepDone()) == Wait()


@given(
    st.integers(0, 50),
    st.integers(0, 60),
    st.none() | st.integers(1, 20),
    st.floats(0.1, 100),
    st.floats(0.01, 50),
)
def test_the_due_step_is_the_next_at_which_it_would_save(
    committed: int, ahead: int, every: int | None, every_s: float, step_time_s: float
) -> None:
    policy = SavePolicy(every_steps=every) if every else SavePolicy(every_s=every_s)

    def view(step: int) -> View:
        return View(now_s=0, step=step, step_time_s=step_time_s, committed_step={"storage": committed})

    start = committed + ahead
    due = policy.due_step(view(start))
    assert due is not None
    assert due >= start
    saves = [step for step in range(start, due + 1) if policy.decide(view(step), StepDone()) == Save("storage")]
    # a save that is overdue comes with the next step that is asked about, and so does not move the one before
    assert saves[-1] == due
    assert saves == [due] or every is None


def test_storage_behind_memory_is_saved_for_the_rest_of_the_failures() -> None:
    policy = SavePolicy(failure_share=0.1)
    view = View(now_s=0, step=0, save_cost_s={"storage": 2.0}, failure_rate_per_s=1e-3)
    assert policy.interval_s(view) == daly_interval_s(2.0, 1e4)
    assert SavePolicy(failure_share=0.0).due_step(view) is None
