"""When to save, and the interval that loses the least time to saves and failures together."""

import math
from dataclasses import dataclass

from argosy.policy.action import Action, Save, Wait
from argosy.policy.event import Event, StepDone
from argosy.policy.view import Tier, View
from argosy.recipe.schema import CheckpointTable


@dataclass(frozen=True)
class SavePolicy:
    """Save at multiples of `every_steps`, or `every_s` of work after the last commit, or with neither by Daly."""

    every_steps: int | None = None
    every_s: float | None = None
    tier: Tier = "storage"

    @classmethod
    def from_recipe(cls, table: CheckpointTable) -> "SavePolicy":
        return cls(every_steps=table.every_steps, every_s=table.every_s)

    def decide(self, view: View, event: Event) -> Action:
        """Save or Wait, after each step."""
        if not isinstance(event, StepDone):
            return Wait()
        since = view.step - view.committed_step.get(self.tier, 0)
        if since <= 0:
            return Wait()
        if self.every_steps is not None:
            due = view.step % self.every_steps == 0
        elif view.step_time_s is None:
            due = False
        else:
            # saving one step earlier or later costs the same, so the nearer of the two is taken
            due = (since + 0.5) * view.step_time_s >= self.interval_s(view)
        return Save(self.tier) if due else Wait()

    def interval_s(self, view: View) -> float:
        """Work between saves in seconds; infinite while cost or failure rate is unknown."""
        if self.every_s is not None:
            return self.every_s
        cost_s = view.save_cost_s.get(self.tier)
        if cost_s is None or not view.failure_rate_per_s:
            return math.inf
        return daly_interval_s(cost_s, 1 / view.failure_rate_per_s)


def daly_interval_s(save_cost_s: float, mtbf_s: float) -> float:
    """The work between saves that makes the expected wall time of :func:`daly_wall_s` least.

    Its derivative is zero where x + exp(-(x + w/M)) = 1 with x = D/M, which has one root in (0, 1).
    Daly 2006, "A higher order estimate of the optimum checkpoint interval"; unlike his series it holds for any M.
    """
    cost = save_cost_s / mtbf_s
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if -middle - math.expm1(-(middle + cost)) > 0:
            low = middle
        else:
            high = middle
    return high * mtbf_s


def daly_wall_s(work_s: float, interval_s: float, save_cost_s: float, restart_s: float, mtbf_s: float) -> float:
    """Expected wall time of `work_s` useful seconds under exponential failures.

    wall = (T/D) · M · e^(u/M) · (e^((D+w)/M) - 1), Daly 2006, exact form.
    """
    per_interval_s = mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1((interval_s + save_cost_s) / mtbf_s)
    return work_s / interval_s * per_interval_s
