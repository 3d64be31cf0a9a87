"""The launcher's duties inside rank 0's process, when torchrun or srun started the ranks and there is no launcher."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from argosy.launch.attempt import Attempt, open_attempt, stop_reason
from argosy.launch.devices import Slots
from argosy.launch.opening import opened
from argosy.launch.paid_before import paid_before_ns
from argosy.layout.layout import Layout
from argosy.recipe.schema import Recipe


@dataclass(frozen=True)
class Inline:
    """What rank 0 tells the other ranks before they open their journals."""

    attempt: Attempt
    """Set its `exit` before the block is left."""
    paid_before_ns: int


@contextmanager
def inline_attempt(folder: Path, recipe: Recipe, layout: Layout, slots: Slots) -> Iterator[Inline | None]:
    """Open the run in `folder` and one attempt of it; `slots` of this host are paid for until the block is left.

    None when the run is finished: all ranks then end with DONE. Raises what :func:`argosy.launch.opening.opened`
    raises.
    """
    with opened(folder, recipe) as (run, finished):
        if finished is not None:
            yield None
            return
        paid_ns = paid_before_ns(run)
        with open_attempt(run, recipe, layout, slots) as attempt:
            yield Inline(attempt, paid_ns)
            attempt.reason = stop_reason(run, attempt.number)
