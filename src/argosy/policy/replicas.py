"""Whether the others train on when a replica of the model is lost."""

from dataclasses import dataclass

from argosy.policy.action import Action, RebuildGroups, Wait
from argosy.policy.event import Event, RanksLost
from argosy.policy.view import View


@dataclass(frozen=True)
class ReplicaPolicy:
    """Groups of `group_ranks` ranks that each hold the whole state: losing one costs the others a step, not a restart.

    The lost group comes back beside the running ones and takes the state from them (torchft, FT-HSDP).
    """

    group_ranks: int
    min_groups: int = 1
    """Groups that must be left; below, the job restarts as a whole."""

    def decide(self, view: View, event: Event) -> Action:
        """RebuildGroups when enough groups are left; Wait when somebody else has to find a way (RecoveryPolicy).

        `view.world_size` counts the ranks that train, so groups that are away already do not.
        """
        if not isinstance(event, RanksLost) or not event.ranks:
            return Wait()
        lost = {rank // self.group_ranks for rank in event.ranks}
        left = view.world_size // self.group_ranks - len(lost)
        return RebuildGroups() if left >= max(self.min_groups, 1) else Wait()
