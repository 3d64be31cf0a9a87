"""Which checkpoints stay."""

from collections.abc import Iterable
from dataclasses import dataclass

from argosy.recipe.schema import CheckpointTable


@dataclass(frozen=True)
class RetentionPolicy:
    """Keep the newest `keep_last` checkpoints, and all at multiples of `keep_every_steps`."""

    keep_last: int = 2
    keep_every_steps: int | None = None

    @classmethod
    def from_recipe(cls, table: CheckpointTable) -> "RetentionPolicy":
        return cls(keep_last=table.keep_last, keep_every_steps=table.keep_every_steps)

    def surplus(self, steps: Iterable[int]) -> list[int]:
        """Those of the committed `steps` that may go, oldest first; the newest never does."""
        ordered = sorted(set(steps))
        newest = set(ordered[-max(self.keep_last, 1) :])
        milestones = {step for step in ordered if self.keep_every_steps and step % self.keep_every_steps == 0}
        return [step for step in ordered if step not in newest | milestones]
