"""Time of a step through a pipeline of many micro-batches."""

from collections.abc import Sequence

from argosy.layout.play import StageTimes, play
from argosy.layout.schedules import build


def step_s(
    name: str, ranks: int, virtual_stages: int, micro_batches: int, stages: Sequence[StageTimes], transfer_s: float
) -> float:
    """Seconds of a step of many micro-batches, without playing them all.

    Once full, a pipeline repeats itself, so the time grows by the same amount with each further round of `ranks`
    micro-batches: two short plays give the start, the end and the slope.
    """
    few = 3 * ranks
    if micro_batches <= 4 * ranks:
        return play(build(name, ranks, virtual_stages, micro_batches), stages, transfer_s).total_s
    few += micro_batches % ranks
    first = play(build(name, ranks, virtual_stages, few), stages, transfer_s).total_s
    second = play(build(name, ranks, virtual_stages, few + ranks), stages, transfer_s).total_s
    return first + (second - first) * (micro_batches - few) / ranks
