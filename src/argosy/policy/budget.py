"""Stop before a limit is passed, not after."""

from dataclasses import dataclass
from fractions import Fraction

from argosy.errors import Exit
from argosy.policy.action import Action, Stop, Wait
from argosy.policy.event import BeforeStep, Event
from argosy.policy.view import View
from argosy.recipe.field import decimal
from argosy.recipe.schema import BudgetTable

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class BudgetPolicy:
    """Limits on money, device time and wall time of a whole run, over all its attempts."""

    money: Fraction | None = None
    currency: str = "USD"
    device_hours: float | None = None
    deadline_s: float | None = None

    @classmethod
    def from_recipe(cls, table: BudgetTable) -> "BudgetPolicy":
        return cls(
            money=table.money, currency=table.currency, device_hours=table.device_hours, deadline_s=table.deadline_s
        )

    def decide(self, view: View, event: Event) -> Action:
        """Stop naming the limit when the next step, the save after it and the end would not fit; else Wait.

        While the step time is unknown (the first step), only what is already spent counts.
        """
        if not isinstance(event, BeforeStep):
            return Wait()
        if view.step_time_s is None:
            ahead_s = Fraction(0)
        else:
            ahead_s = Fraction(view.step_time_s + view.save_cost_s.get("storage", 0.0) + event.closing_s)
        if self.money is not None and event.paid_money is not None:
            cost = event.paid_money + ahead_s * (view.price_per_s or 0)
            if cost > self.money:
                return Stop(Exit.DONE, f"budget.money: the next step would pass {decimal(self.money)} {self.currency}")
        if self.device_hours is not None:
            devices = view.world_size + view.spares
            if event.paid_device_ns + ahead_s * devices * _NS_PER_S > Fraction(self.device_hours) * 3600 * _NS_PER_S:
                return Stop(
                    Exit.DONE, f"budget.device_hours: the next step would pass {self.device_hours:g} device-hours"
                )
        if self.deadline_s is not None and event.since_created_s + ahead_s > self.deadline_s:
            return Stop(
                Exit.DONE, f"budget.deadline_s: the next step would pass {self.deadline_s:g} s since the run began"
            )
        return Wait()
