"""When a run has learned enough."""

import math
from dataclasses import dataclass

from argosy.errors import Exit
from argosy.policy.action import Action, Stop, Wait
from argosy.policy.event import Evaluated, Event
from argosy.policy.view import View
from argosy.recipe.schema import ObjectiveTable


@dataclass(frozen=True)
class ObjectivePolicy:
    """Stop at the target loss, or after `patience_evals` evaluations without a new best by `min_gain`."""

    target_loss: float | None = None
    patience_evals: int | None = None
    min_gain: float = 0.0

    @classmethod
    def from_recipe(cls, table: ObjectiveTable) -> "ObjectivePolicy":
        return cls(target_loss=table.target_loss, patience_evals=table.patience_evals, min_gain=table.min_gain)

    def decide(self, view: View, event: Event) -> Action:
        """Stop with the rule's name, or Wait. The whole history comes with the event, so restarts change nothing."""
        if not isinstance(event, Evaluated) or not event.losses:
            return Wait()
        newest = event.losses[-1]
        if self.target_loss is not None and newest <= self.target_loss:
            return Stop(Exit.DONE, f"target loss {self.target_loss:g} reached: {newest:.4f}")
        waited = self._evals_without_gain(event.losses)
        if self.patience_evals is not None and waited >= self.patience_evals:
            return Stop(Exit.DONE, f"no better by {self.min_gain:g} for {waited} evaluations")
        return Wait()

    def _evals_without_gain(self, losses: tuple[float, ...]) -> int:
        best, waited = math.inf, 0
        for loss in losses:
            # a NaN is never better, so it counts as waiting
            if loss < best and best - loss >= self.min_gain:
                best, waited = loss, 0
            else:
                waited += 1
        return waited
