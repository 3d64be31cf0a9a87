"""Schedules that split the backward in two: the gradient of a stage's input goes on at once, that of its weights waits.

Qi et al. 2023, arXiv 2401.10241: weight gradients need no neighbour, so they fill what would be bubble. A schedule that
runs ahead by p - r forwards on rank r leaves rank r time for r weight gradients less than gradients of inputs; so
delayed, they keep every rank busy but for p - 1 units (F, I and W of one unit each), a third of the bubble before.
"""

from argosy.layout.action import Action, Kind
from argosy.layout.interleaved import interleaved_1f1b
from argosy.layout.schedule import Schedule, one_forward_one_backward
from argosy.layout.transfers import COMPUTE, with_transfers


def zero_bubble(ranks: int, micro_batches: int) -> Schedule:
    """ZB-H1: 1F1B with delayed weight gradients; every rank holds as many activations as 1F1B's first, `ranks`."""
    return _delay_weights("zero_bubble", one_forward_one_backward(ranks, micro_batches))


def interleaved_zero_bubble(ranks: int, virtual_stages: int, micro_batches: int) -> Schedule:
    """Interleaved 1F1B with delayed weight gradients; no rank holds more than its first.

    Raises ScheduleError when `micro_batches` is no multiple of `ranks`.
    """
    return _delay_weights("interleaved_zero_bubble", interleaved_1f1b(ranks, virtual_stages, micro_batches))


def _delay_weights(name: str, whole: Schedule) -> Schedule:
    """`whole` with each B split, and on rank r each W after r more gradients of inputs."""
    work = []
    for rank, actions in enumerate(whole.ranks):
        out: list[Action] = []
        waiting: list[Action] = []
        for action in actions:
            if action.kind is Kind.B:
                out.append(Action(action.stage, Kind.I, action.micro_batch))
                waiting.append(Action(action.stage, Kind.W, action.micro_batch))
                if len(waiting) > rank:
                    out.append(waiting.pop(0))
            elif action.kind in COMPUTE:
                out.append(action)
        work.append([*out, *waiting])
    return with_transfers(name, whole.micro_batches, work, whole.stage_rank())
