"""What to do after a fault: the cheapest rung of a ladder that can still help."""

from dataclasses import dataclass
from typing import Literal

from argosy.errors import Exit
from argosy.policy.action import Action, RebuildGroups, RestartWorkers, RollBack, Shrink, Skip, Stop, UseSpare, Wait
from argosy.policy.event import Event, NonFiniteUpdate, RanksLost
from argosy.policy.view import View
from argosy.recipe.schema import ResilienceTable

Rung = Literal["rebuild_groups", "restart_workers", "use_spare", "shrink", "roll_back"]


@dataclass(frozen=True)
class RecoveryPolicy:
    """Climb `rungs` from cheap to dear, `tries_per_rung` each, while no new step is committed; then stop.

    Escalation only by failed tries keeps the loss within a constant factor of the best choice in hindsight (ski
    rental, as in Greyhound). A crash loop ends in a stop that asks for a person, never in an endless restart.
    """

    rungs: tuple[Rung, ...] = ("restart_workers", "use_spare", "shrink")
    tries_per_rung: int = 1
    restarts_limit: int = 3
    """Restarts without a new commit after which a person is needed."""
    skipped_updates_limit: int = 8
    """Non-finite updates in a row after which a person is needed."""
    min_world_size: int = 1

    @classmethod
    def from_recipe(cls, table: ResilienceTable, rungs: tuple[Rung, ...] | None = None) -> "RecoveryPolicy":
        """`rungs` are those that the caller can climb; None: the default ones."""
        return cls(
            rungs=cls.rungs if rungs is None else rungs,
            skipped_updates_limit=table.skipped_updates_limit,
            restarts_limit=table.restarts_limit,
        )

    def decide(self, view: View, event: Event) -> Action:
        """Skip for a non-finite update, a rung for lost ranks, Stop when the limits are reached."""
        if isinstance(event, NonFiniteUpdate):
            if event.in_a_row >= self.skipped_updates_limit:
                return Stop(Exit.NEEDS_PERSON, f"{event.in_a_row} non-finite updates in a row")
            return Skip()
        if isinstance(event, RanksLost):
            return self._replace(view, event)
        return Wait()

    def _replace(self, view: View, event: RanksLost) -> Action:
        if view.restarts_since_commit >= self.restarts_limit:
            return Stop(Exit.NEEDS_PERSON, f"{view.restarts_since_commit} restarts without a new checkpoint")
        if event.out_of_memory and event.at_this_place:
            return Stop(Exit.NEEDS_PERSON, f"ranks {_short(event.ranks)} ran out of memory at the same step again")
        if event.good_until is not None:
            return self._before(view, event)
        first = view.restarts_since_commit // self.tries_per_rung
        usable = [action for rung in self.rungs if (action := self._action(rung, view, event)) is not None]
        if not usable:
            return Stop(Exit.NEEDS_PERSON, f"no way to go on without ranks {_short(event.ranks)}")
        return usable[min(first, len(usable) - 1)]

    def _before(self, view: View, event: RanksLost) -> Action:
        """Back to a state that is above suspicion; the same fault at the same place once more needs a person."""
        step = view.committed_step.get("storage")
        if event.at_this_place:
            return Stop(Exit.NEEDS_PERSON, "the same fault came back at the same place after a roll-back")
        if step is None:
            return Stop(Exit.NEEDS_PERSON, f"no checkpoint is from before step {event.good_until}")
        return RollBack(step)

    def _action(self, rung: Rung, view: View, event: RanksLost) -> Action | None:
        """What `rung` means here, or None when it cannot help."""
        left = view.world_size - len(event.ranks)
        match rung:
            case "rebuild_groups" if not event.hardware:
                return RebuildGroups()
            case "restart_workers" if not event.hardware:
                return RestartWorkers()
            case "use_spare" if view.spares >= len(event.ranks):
                return UseSpare()
            case "shrink" if left >= self.min_world_size:
                return Shrink(left)
            case "roll_back" if "storage" in view.committed_step:
                return RollBack(view.committed_step["storage"])
            case _:
                return None


def _short(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
