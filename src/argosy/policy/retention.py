"""Which checkpoints stay."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from argosy.recipe.schema import CheckpointTable


@dataclass(frozen=True)
class RetentionPolicy:
    """Keep the newest `keep_last` checkpoints, all at multiples of `keep_every_steps`, the `keep_best` of the lowest
    evaluation loss, and one that is older than corruption may stay unnoticed (`keep_before_steps`)."""

    keep_last: int = 2
    keep_every_steps: int | None = None
    keep_best: int = 0
    keep_before_steps: int | None = None

    @classmethod
    def from_recipe(cls, table: CheckpointTable) -> "RetentionPolicy":
        return cls(table.keep_last, table.keep_every_steps, table.keep_best, table.keep_before_steps)

    def surplus(self, steps: Iterable[int], losses: Mapping[int, float] = MappingProxyType({})) -> list[int]:
        """Those of the verified `steps` that may go, oldest first; the newest never does.

        `losses` are evaluation losses by step, where known. Of equal ones the older counts as better: it is nearer to
        the evaluation that both go by.
        """
        ordered = sorted(set(steps))
        stay = set(ordered[-max(self.keep_last, 1) :])
        stay |= {step for step in ordered if self.keep_every_steps and step % self.keep_every_steps == 0}
        known = sorted((losses[step], step) for step in ordered if losses.get(step, float("nan")) == losses.get(step))
        stay |= {step for _, step in known[: self.keep_best]}
        if self.keep_before_steps is not None and ordered:
            # The newest one that is old enough, and the oldest of the others: it will be the next that is.
            border = ordered[-1] - self.keep_before_steps
            stay |= set([step for step in ordered if step <= border][-1:])
            stay |= set([step for step in ordered if step > border][:1])
        return [step for step in ordered if step not in stay]
