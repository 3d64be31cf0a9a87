"""What one rank learns, all ranks know: work that can fail anywhere is done everywhere before anybody goes on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch.distributed as dist

from argosy.checkpoint.causes import root_cause
from argosy.errors import ArgosyError

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """How the work went on one rank: a value, or why there is none."""

    value: T | None = None
    error: Exception | None = None


def on_all_ranks(work: Callable[[], T], group: dist.ProcessGroup | None) -> list[Outcome[T]]:
    """Run `work` on each rank and tell every rank how it went on all of them, in rank order; collective.

    Errors that are not Argosy's own become one line of text, so that they can travel.
    """
    try:
        outcome: Outcome[T] = Outcome(work())
    except Exception as error:  # whatever failed, the others must learn of it instead of waiting
        outcome = Outcome(error=error if isinstance(error, ArgosyError) else ArgosyError(root_cause(error)))
    if group is None:
        return [outcome]
    outcomes: list[Outcome[T]] = [outcome] * dist.get_world_size(group)
    dist.all_gather_object(outcomes, outcome, group=group)
    return outcomes


def first_error(outcomes: Sequence[Outcome]) -> Exception | None:
    """That of the lowest rank: the same on all ranks."""
    return next((outcome.error for outcome in outcomes if outcome.error is not None), None)
