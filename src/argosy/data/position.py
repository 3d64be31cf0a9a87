"""Where a run stands in its data: one integer, what it left out, and the weights that were in force until there."""

from dataclasses import dataclass, replace
from typing import Any

from argosy.data.mixture import Stage

Ranges = tuple[tuple[int, int], ...]
"""Stretches of global indices: (first, count), ascending."""


@dataclass(frozen=True)
class Position:
    """All that a loader needs to go on; together with recipe and data it says what was used and what comes.

    Attributes:
        index: the next global index.
        skipped: stretches of indices that nobody trains on, such as a batch that broke the run; past ones too.
        weights: the mixture's weights in force before ``index``. What was drawn stays drawn: a recipe with other
            weights changes only what comes after.
    """

    index: int = 0
    skipped: Ranges = ()
    weights: tuple[Stage, ...] = ()

    def take(self, count: int) -> tuple[Ranges, "Position"]:
        """The next ``count`` indices that are not skipped, and the position after them."""
        found: list[tuple[int, int]] = []
        index = self.index
        for first, length in (*self.skipped, (1 << 62, 0)):
            if first + length <= index:
                continue
            if first > index:
                part = min(count, first - index)
                found.append((index, part))
                count, index = count - part, index + part
            if not count:
                break
            index = first + length
        return tuple(found), replace(self, index=index)

    def skip(self, first: int, count: int) -> "Position":
        """The same position with another stretch left out; stretches that touch become one."""
        merged: list[tuple[int, int]] = []
        for begin, length in sorted([*self.skipped, (first, count)]):
            if merged and begin <= sum(merged[-1]):
                start, before = merged[-1]
                merged[-1] = (start, max(start + before, begin + length) - start)
            else:
                merged.append((begin, length))
        return replace(self, skipped=tuple(merged))

    def schedule(self, stages: list[Stage]) -> list[Stage]:
        """The weights of a run that goes on here with the recipe's ``stages``."""
        past = [stage for stage in self.weights if stage.first < self.index]
        if not past:
            return stages
        now = [stage for stage in stages if stage.first <= self.index][-1]
        found = [*past, replace(now, first=self.index), *(stage for stage in stages if stage.first > self.index)]
        return [stage for at, stage in enumerate(found) if not at or stage.weights != found[at - 1].weights]

    def to_dict(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "skipped": [list(stretch) for stretch in self.skipped],
            "weights": [[stage.first, list(stage.weights)] for stage in self.weights],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Position":
        return cls(
            values["index"],
            tuple((first, count) for first, count in values["skipped"]),
            tuple(Stage(first, tuple(weights)) for first, weights in values["weights"]),
        )
