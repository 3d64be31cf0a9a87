"""What becomes of the batch when the number of devices changes."""

from dataclasses import dataclass

from argosy.errors import Exit
from argosy.policy.action import Action, Grow, Shrink, Stop, Wait
from argosy.policy.event import CapacityChanged, Event
from argosy.policy.view import View


@dataclass(frozen=True)
class ResizePolicy:
    """The global batch stays as it is, so learning does not change; the world takes the largest size that deals it
    out evenly."""

    batch_sequences: int
    """Sequences of a global batch."""
    model_ranks: int = 1
    """Ranks that share one copy of the data: cp·tp·pp."""
    min_world_size: int = 1

    def world_size(self, available: int) -> int | None:
        """The largest usable world size on `available` devices; None when none is allowed."""
        for data_ranks in range(min(available // self.model_ranks, self.batch_sequences), 0, -1):
            size = data_ranks * self.model_ranks
            if size < self.min_world_size:
                return None
            if self.batch_sequences % data_ranks == 0:
                return size
        return None

    def decide(self, view: View, event: Event) -> Action:
        """Shrink, Grow, Wait, or Stop when too few devices are left."""
        if not isinstance(event, CapacityChanged):
            return Wait()
        size = self.world_size(event.available)
        if size is None:
            return Stop(Exit.START_AGAIN, f"{event.available} devices are too few")
        if size == view.world_size:
            return Wait()
        return Shrink(size) if size < view.world_size else Grow(size)
