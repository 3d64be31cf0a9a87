"""Schedules with several stages per rank, dealt out in a loop: stage s is on rank s mod p."""

from argosy.layout.action import Action, Kind, ScheduleError
from argosy.layout.schedule import Schedule
from argosy.layout.transfers import with_transfers


def interleaved_1f1b(ranks: int, virtual_stages: int, micro_batches: int) -> Schedule:
    """1F1B over ``ranks · virtual_stages`` stages: the bubble shrinks by `virtual_stages`, transfers grow by it.

    Micro-batches go through in rounds of `ranks`. Narayanan et al. 2021, arXiv 2104.04473, section 2.2.
    Raises ScheduleError when `micro_batches` is no multiple of `ranks`.
    """
    if micro_batches % ranks:
        raise ScheduleError(
            f"interleaved_1f1b needs a multiple of {ranks} micro-batches, not {micro_batches}; "
            f"nearest: {max(1, micro_batches // ranks) * ranks} or {(micro_batches // ranks + 1) * ranks}"
        )
    total = micro_batches * virtual_stages

    def action(rank: int, kind: Kind, step: int) -> Action:
        turn, place = divmod(step, ranks * virtual_stages)
        chunk, offset = divmod(place, ranks)
        if kind is Kind.B:
            chunk = virtual_stages - 1 - chunk
        return Action(chunk * ranks + rank, kind, turn * ranks + offset)

    work = []
    for rank in range(ranks):
        # Rank 0 has to see a micro-batch through all its stages before its gradient can come back
        ahead = min(total, 2 * (ranks - 1 - rank) + (virtual_stages - 1) * ranks)
        forwards = [action(rank, Kind.F, step) for step in range(total)]
        backwards = [action(rank, Kind.B, step) for step in range(total)]
        mixed = [a for pair in zip(forwards[ahead:], backwards, strict=False) for a in pair]
        work.append([*forwards[:ahead], *mixed, *backwards[total - ahead :]])
    return with_transfers("interleaved_1f1b", micro_batches, work, _loop(ranks, virtual_stages))


def looped_bfs(ranks: int, virtual_stages: int, micro_batches: int) -> Schedule:
    """All micro-batches through one virtual stage after the other: few gathers of sharded weights, most activations.

    Lamy-Poirier 2023 (breadth-first pipeline parallelism), arXiv 2211.05953.
    """
    chunks = range(virtual_stages)
    work = [
        [Action(chunk * ranks + rank, Kind.F, micro) for chunk in chunks for micro in range(micro_batches)]
        + [Action(chunk * ranks + rank, Kind.B, micro) for chunk in reversed(chunks) for micro in range(micro_batches)]
        for rank in range(ranks)
    ]
    return with_transfers("looped_bfs", micro_batches, work, _loop(ranks, virtual_stages))


def _loop(ranks: int, virtual_stages: int) -> dict[int, int]:
    return {stage: stage % ranks for stage in range(ranks * virtual_stages)}
