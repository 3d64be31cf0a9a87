"""What a job does between two storage saves: steps, and saves where its policies want them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.policy.action import Save
from argosy.policy.event import StepDone
from argosy.policy.save import SavePolicy
from argosy.policy.view import Tier, View
from argosy.simulator.job import SaveTimes

MOST_ASKED = 4096
"""Times that the policies are asked for one pattern: it then ends though no save to storage came."""

ViewAt = Callable[[int, dict[Tier, int]], View]
"""(step, newest saved step by tier) → what the policies see after that step."""


@dataclass(frozen=True)
class Pattern:
    """The saves that follow a state, up to and with the next one to storage."""

    offsets: NDArray[np.int64]
    """Steps from the state to each save."""
    tiers: tuple[Tier, ...]
    ends_s: NDArray[np.float64]
    """From the state to the end of each save."""
    step_s: float

    @property
    def steps(self) -> int:
        return int(self.offsets[-1]) if len(self.offsets) else 0

    @property
    def length_s(self) -> float:
        """Of the whole pattern; without end when nothing is ever saved."""
        return float(self.ends_s[-1]) if len(self.ends_s) else float("inf")

    def after_s(self, steps: int) -> float:
        """From the state to the end of the step that makes it `steps` more; saves before that step included."""
        before = int(np.searchsorted(self.offsets, steps, "left"))
        stalls = self.ends_s[before - 1] - self.offsets[before - 1] * self.step_s if before else 0.0
        return float(steps * self.step_s + stalls)

    def at(self, elapsed_s: float) -> tuple[int, int, float]:
        """(saves done, steps done, time in what is under way) when so much time has passed, less than the length.

        When all steps before the next save are done, that save is under way.
        """
        saves = int(np.searchsorted(self.ends_s, elapsed_s, "right"))
        begin, begin_s = (int(self.offsets[saves - 1]), float(self.ends_s[saves - 1])) if saves else (0, 0.0)
        steps = int((elapsed_s - begin_s) / self.step_s * (1 + 1e-12))
        if saves < len(self.offsets):
            steps = min(steps, int(self.offsets[saves]) - begin)
        return saves, begin + steps, max(0.0, elapsed_s - begin_s - steps * self.step_s)

    def in_save(self, saves: int, steps: int) -> bool:
        """Whether save number `saves` is under way, as :meth:`at` counts."""
        return saves < len(self.offsets) and steps == self.offsets[saves]


def ask(
    policies: Sequence[SavePolicy], times: dict[Tier, SaveTimes], step: int, saved: dict[Tier, int], view_at: ViewAt
) -> Pattern:
    """Ask the policies where to save, from the state after `step` on."""
    start, saved = step, dict(saved)
    offsets: list[int] = []
    tiers: list[Tier] = []
    for _ in range(MOST_ASKED):
        ahead = view_at(step + 1, saved)
        dues = [due for policy in policies if (due := policy.due_step(ahead)) is not None]
        if not dues:
            break
        step = min(dues)
        tier = _decided(policies, view_at(step, saved))
        if tier is None:
            continue
        offsets.append(step - start)
        tiers.append(tier)
        saved[tier] = step
        if tier == "storage":
            break
    step_s = view_at(step, saved).step_time_s
    assert step_s is not None
    at = np.array(offsets, np.int64)
    stalls = np.array([times[tier].block_s for tier in tiers])
    return Pattern(at, tuple(tiers), at * step_s + np.cumsum(stalls), step_s)


def _decided(policies: Sequence[SavePolicy], view: View) -> Tier | None:
    for policy in policies:
        action = policy.decide(view, StepDone())
        if isinstance(action, Save):
            return action.tier
    return None
