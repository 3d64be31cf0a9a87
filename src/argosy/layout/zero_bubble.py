"""Schedules that split the backward in two and fill the bubble with weight gradients.

Qi et al. 2023, arXiv 2401.10241 (zero bubble) and 2024, arXiv 2405.15362 (V placement). The order is found by
list scheduling with F, I and W of one unit each, under a limit of activations, and is then an ordinary schedule.
"""

from collections.abc import Mapping

from argosy.layout.action import Action, Kind, ScheduleError
from argosy.layout.schedule import Schedule
from argosy.layout.transfers import with_transfers


def zero_bubble(ranks: int, micro_batches: int) -> Schedule:
    """ZB-1P: one stage per rank, no more activations than 1F1B, about a third of its bubble."""
    owner = {stage: stage for stage in range(ranks)}
    return _list_schedule("zero_bubble", micro_batches, owner, limit=ranks)


def zbv(ranks: int, micro_batches: int) -> Schedule:
    """Two stages per rank in a V (stages r and 2p-1-r): activations of 1F1B on every rank, bubble near zero.

    Raises ScheduleError for fewer than 2·ranks micro-batches, which cannot fill the V.
    """
    if micro_batches < 2 * ranks:
        raise ScheduleError(f"zbv needs at least {2 * ranks} micro-batches for {ranks} ranks, not {micro_batches}")
    owner = {stage: min(stage, 2 * ranks - 1 - stage) for stage in range(2 * ranks)}
    return _list_schedule("zbv", micro_batches, owner, limit=2 * ranks)


def _list_schedule(name: str, micro_batches: int, owner: Mapping[int, int], limit: int) -> Schedule:
    """Each rank, at each unit of time, does the most urgent thing that is ready: I, then F within `limit`, then W.

    `limit`: stage activations that a rank may hold. Of several forwards the deeper stage goes first, since it is
    nearer to the gradient that frees memory.
    """
    stages, ranks = len(owner), max(owner.values()) + 1
    finished: dict[Action, int] = {}
    work: list[list[Action]] = [[] for _ in range(ranks)]
    mine = [[stage for stage in sorted(owner, reverse=True) if owner[stage] == rank] for rank in range(ranks)]
    following = {(stage, kind): 0 for stage in owner for kind in (Kind.F, Kind.I, Kind.W)}
    held = [0] * ranks
    left = 3 * stages * micro_batches

    def is_done(action: Action, clock: int) -> bool:
        return finished.get(action, clock + 1) <= clock

    def ready(stage: int, kind: Kind, clock: int) -> bool:
        micro = following[stage, kind]
        if micro == micro_batches:
            return False
        if kind is Kind.F:
            # The last slots are for the deeper stages: without them the first stage could fill the memory for good
            room = limit - (0 if stage == mine[owner[stage]][0] else len(mine[owner[stage]]) - 1)
            return held[owner[stage]] < room and (stage == 0 or is_done(Action(stage - 1, Kind.F, micro), clock))
        if kind is Kind.W:
            return is_done(Action(stage, Kind.I, micro), clock)
        return is_done(Action(stage, Kind.F, micro), clock) and (
            stage == stages - 1 or is_done(Action(stage + 1, Kind.I, micro), clock)
        )

    clock = 0
    while left:
        for rank in range(ranks):
            options = ((stage, kind) for kind in (Kind.I, Kind.F, Kind.W) for stage in mine[rank])
            choice = next((option for option in options if ready(*option, clock)), None)
            if choice is None:
                continue
            stage, kind = choice
            action = Action(stage, kind, following[choice])
            following[choice] += 1
            held[rank] += (kind is Kind.F) - (kind is Kind.W)
            finished[action] = clock + 1
            work[rank].append(action)
            left -= 1
        clock += 1
        if clock > 6 * stages * micro_batches + 6 * stages:
            raise ScheduleError(f"{name} does not finish with {limit} activations per rank")
    return with_transfers(name, micro_batches, work, owner)
