"""A run stops before the step that would pass a limit, and not one step earlier."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.errors import Exit
from argosy.policy.action import Stop, Wait
from argosy.policy.budget import BudgetPolicy
from argosy.policy.event import BeforeStep, StepDone
from argosy.policy.view import View
from argosy.recipe.schema import BudgetTable

NS = 1_000_000_000


def run(
    policy: BudgetPolicy, step_s: int, save_s: int, devices: int, price: Fraction, start: int = 0
) -> tuple[int, str]:
    """Steps done from second `start` on, and the reason of the stop; all times whole seconds."""
    view = View(
        now_s=0,
        step=0,
        step_time_s=float(step_s),
        save_cost_s={"storage": float(save_s)},
        world_size=devices,
        price_per_s=price * devices,
    )
    for steps in range(100_000):
        now_s = start + steps * step_s
        event = BeforeStep(now_s * devices * NS, now_s * devices * price, float(now_s))
        action = policy.decide(view, event)
        if isinstance(action, Stop):
            assert action.exit_code is Exit.DONE
            return steps, action.reason
    raise AssertionError("never stopped")


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 9), st.integers(1, 500), st.integers(0, 50))
def test_money_is_exact_to_one_step(step_s: int, save_s: int, devices: int, cents: int, start: int) -> None:
    price = Fraction(249, 360_000)  # 2.49 an hour
    limit = Fraction(cents, 100)
    steps, reason = run(BudgetPolicy(money=limit), step_s, save_s, devices, price, start)
    spent = (start + steps * step_s + save_s) * devices * price
    assert "budget.money" in reason
    if steps:
        assert spent <= limit  # what was done, with its save, is inside
    assert spent + step_s * devices * price > limit  # one more step would not be


@given(st.integers(5, 60), st.integers(0, 20), st.integers(1, 9), st.integers(1, 4))
def test_device_hours_and_deadline_are_exact_to_one_step(step_s: int, save_s: int, devices: int, hours: int) -> None:
    steps, reason = run(BudgetPolicy(device_hours=float(hours)), step_s, save_s, devices, Fraction(0))
    assert "budget.device_hours" in reason
    assert (steps * step_s + save_s) * devices <= hours * 3600 < ((steps + 1) * step_s + save_s) * devices
    steps, reason = run(BudgetPolicy(deadline_s=600.0), step_s, save_s, devices, Fraction(0))
    assert "budget.deadline_s" in reason
    assert steps * step_s + save_s <= 600 < (steps + 1) * step_s + save_s


def test_a_limit_hit_exactly_is_not_passed() -> None:
    view = View(now_s=0, step=3, step_time_s=1.0, price_per_s=Fraction(1, 10))
    policy = BudgetPolicy(money=Fraction(1, 2))
    assert policy.decide(view, BeforeStep(0, Fraction(4, 10), 0.0)) == Wait()
    assert policy.decide(view, BeforeStep(0, Fraction(4, 10) + Fraction(1, 10**9), 0.0)) == Stop(
        Exit.DONE, "budget.money: the next step would pass 0.5 USD"
    )


def test_before_the_first_step_only_what_is_spent_counts() -> None:
    policy = BudgetPolicy(deadline_s=10.0)
    view = View(now_s=0, step=0)
    assert policy.decide(view, BeforeStep(0, None, 9.0)) == Wait()
    assert isinstance(policy.decide(view, BeforeStep(0, None, 10.5)), Stop)


def test_closing_time_counts() -> None:
    view = View(now_s=0, step=1, step_time_s=1.0, save_cost_s={"storage": 2.0})
    policy = BudgetPolicy(deadline_s=10.0)
    assert policy.decide(view, BeforeStep(0, None, 7.0)) == Wait()
    assert isinstance(policy.decide(view, BeforeStep(0, None, 7.0, closing_s=0.5)), Stop)


@pytest.mark.parametrize("event", [BeforeStep(10**20, Fraction(10**9), 1e12), StepDone()])
def test_no_limit_never_stops(event: BeforeStep | StepDone) -> None:
    assert BudgetPolicy().decide(View(now_s=0, step=1, step_time_s=1.0), event) == Wait()


def test_from_recipe() -> None:
    table = BudgetTable(money="2.50", deadline_s=3.0, currency="EUR")  # type: ignore[arg-type]
    assert BudgetPolicy.from_recipe(table) == BudgetPolicy(Fraction(5, 2), "EUR", None, 3.0)
