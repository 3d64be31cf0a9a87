"""Whether and how a run goes on after a fault: the recovery policy, shown what this launcher knows."""

import time

from argosy.checkpoint.folders import saved_steps
from argosy.launch.supervise import Failure
from argosy.policy.action import Action, Stop
from argosy.policy.event import RanksLost
from argosy.policy.recovery import RecoveryPolicy, Rung
from argosy.policy.view import Tier, View
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder

RUNGS: tuple[Rung, ...] = ("restart_workers",)
"""What one machine can do about lost ranks, cheapest first."""


class Restarts:
    """Counts restarts without a new committed step, and faults that come back at the same place."""

    def __init__(self, run: RunFolder, recipe: Recipe, world: int):
        self._run = run
        self._policy = RecoveryPolicy.from_recipe(recipe.resilience, RUNGS)
        self._world = world
        self._restarts = 0
        self._committed = self._newest()
        self._places: list[tuple[str, int | None, int | None]] = []

    def decide(self, failure: Failure) -> Action:
        """What to do now; a rank's own word that another start is useless stands."""
        incident = failure.incident
        committed = self._newest()
        if committed > self._committed:
            self._committed, self._restarts, self._places = committed, 0, []
        place = (incident.kind, incident.rank, incident.step)
        event = RanksLost(
            ranks=() if incident.rank is None else (incident.rank,),
            out_of_memory=incident.kind == "out_of_memory",
            at_this_place=self._places.count(place),
        )
        view = View(
            now_s=time.monotonic(),
            step=incident.step or 0,
            step_time_s=failure.step_s,
            committed_step=self._committed_steps(),
            restarts_since_commit=self._restarts,
            world_size=self._world,
        )
        action = self._policy.decide(view, event) if failure.told is None else Stop(failure.told, incident.cause)
        self._restarts += 1
        self._places.append(place)
        return action

    def _committed_steps(self) -> dict[Tier, int]:
        steps: dict[Tier, int] = {}
        if storage := saved_steps(self._run.checkpoints):
            steps["storage"] = storage[0]
        return steps

    def _newest(self) -> int:
        return max(self._committed_steps().values(), default=0)
