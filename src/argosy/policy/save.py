"""When to save, and the interval that loses the least time to saves and failures together."""

import math
from dataclasses import dataclass
from functools import lru_cache

from argosy.policy.action import Action, Save, Wait
from argosy.policy.event import Event, StepDone
from argosy.policy.view import Tier, View
from argosy.recipe.schema import CheckpointTable

NEGLIGIBLE_SHARE = 0.02
"""Of a step, for a snapshot: so much is paid gladly for losing one step at most."""
BEYOND_MEMORY_SHARE = 0.25
"""Of the failures: what takes the machine with it. A restart on the same machine was enough for the other three
quarters in ByteRobust's fleet (research/resilience.md 1.6)."""


@dataclass(frozen=True)
class SavePolicy:
    """Save at multiples of `every_steps`, or `every_s` of work after the last commit, or with neither by Daly."""

    every_steps: int | None = None
    every_s: float | None = None
    tier: Tier = "storage"
    failure_share: float = 1.0
    """Share of the failures after which a run goes back to this tier. Where copies in memory outlive most failures,
    storage serves only the rest, and its interval by Daly is that much longer."""
    negligible_share: float = 0.0
    """A save that takes a smaller share of a step than this is made at each step, whatever Daly would say."""

    @classmethod
    def from_recipe(cls, table: CheckpointTable, tier: Tier = "storage", *, over_memory: bool = False) -> "SavePolicy":
        """The recipe's policy for a tier; `over_memory`: snapshots in memory outlive most failures of this storage."""
        if tier == "memory":
            return cls(every_steps=table.snapshot_every_steps, tier=tier, negligible_share=NEGLIGIBLE_SHARE)
        share = BEYOND_MEMORY_SHARE if over_memory else 1.0
        return cls(every_steps=table.every_steps, every_s=table.every_s, failure_share=share)

    def decide(self, view: View, event: Event) -> Action:
        """Save or Wait, after each step."""
        if not isinstance(event, StepDone):
            return Wait()
        return Save(self.tier) if view.step == self.due_step(view) else Wait()

    def due_step(self, view: View) -> int | None:
        """After which step, `view.step` or a later one, to save next; None for never, or while nobody can know.

        Who looks ahead, as the simulator does, needs to ask only there.
        """
        committed = view.committed_step.get(self.tier, 0)
        first = max(view.step, committed + 1)
        if self.every_steps is not None:
            return -(-first // self.every_steps) * self.every_steps
        interval_s = self.interval_s(view)
        if not view.step_time_s or math.isinf(interval_s):
            return None
        # saving one step earlier or later costs the same, so the nearer of the two is taken
        return max(first, committed + math.ceil(interval_s / view.step_time_s - 0.5))

    def interval_s(self, view: View) -> float:
        """Work between saves in seconds; infinite while cost or failure rate is unknown."""
        if self.every_s is not None:
            return self.every_s
        cost_s = view.save_cost_s.get(self.tier)
        if cost_s is not None and cost_s < self.negligible_share * (view.step_time_s or 0.0):
            return 0.0
        if cost_s is None or not view.failure_rate_per_s or not self.failure_share:
            return math.inf
        return daly_interval_s(cost_s, 1 / (view.failure_rate_per_s * self.failure_share))


@lru_cache(maxsize=1024)
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
