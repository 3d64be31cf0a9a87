"""Completes lists of computations to a schedule: stage transfers, and the final reduction of gradients."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from argosy.layout.action import Action, Kind, ScheduleError
from argosy.layout.schedule import Schedule

COMPUTE = frozenset({Kind.F, Kind.B, Kind.I, Kind.W})


def with_transfers(
    name: str, micro_batches: int, work: Sequence[Sequence[Action]], owner: Mapping[int, int]
) -> Schedule:
    """The schedule in which rank r does ``work[r]`` (F, B, I, W only) in that order; `owner` gives each stage's rank.

    Sends follow their computation. Two ranks may exchange activations and gradients of several stages over one
    channel, which delivers in order; so a receive is placed before the first computation that needs this message
    or any later one of its channel. Waiting for it costs nothing: the later message could not be there before.

    Raises ScheduleError when the computations themselves wait for each other in a circle.
    """
    stages = len(owner)
    sent = _order_of_sends(work, owner, stages)
    position = {action: place for actions in work for place, action in enumerate(actions)}
    before: list[dict[int, list[Action]]] = [defaultdict(list) for _ in work]
    for (_, target), messages in sent.items():
        limit = len(work[target])
        for send in reversed(messages):
            receive = _receive(send)
            limit = min(limit, *(position[reader] for reader in _readers(receive) if reader in position))
            before[target][limit].insert(0, receive)
    ranks = []
    for rank, actions in enumerate(work):
        out: list[Action] = []
        for place, action in enumerate(actions):
            out += before[rank][place]
            out.append(action)
            if (sent_after := _send(action, owner, stages)) is not None:
                out.append(sent_after)
        mine = dict.fromkeys(action.stage for action in actions)
        ranks.append((*out, *(Action(stage, Kind.REDUCE) for stage in sorted(mine, reverse=True))))
    return Schedule(name, stages, micro_batches, tuple(ranks))


def _send(action: Action, owner: Mapping[int, int], stages: int) -> Action | None:
    """What must be sent once `action` is done, if its reader is on another rank."""
    forward = action.kind is Kind.F
    if action.kind is Kind.W:
        return None
    neighbour = action.stage + (1 if forward else -1)
    if not 0 <= neighbour < stages or owner[neighbour] == owner[action.stage]:
        return None
    return Action(action.stage, Kind.SEND_F if forward else Kind.SEND_B, action.micro_batch)


def _receive(send: Action) -> Action:
    """The other end of `send`."""
    forward = send.kind is Kind.SEND_F
    kind = Kind.RECV_F if forward else Kind.RECV_B
    return Action(send.stage + (1 if forward else -1), kind, send.micro_batch)


def _readers(receive: Action) -> list[Action]:
    """Computations that may read what arrives: the forward, or whichever form the backward has."""
    kinds = (Kind.F,) if receive.kind is Kind.RECV_F else (Kind.B, Kind.I)
    return [Action(receive.stage, kind, receive.micro_batch) for kind in kinds]


def _order_of_sends(
    work: Sequence[Sequence[Action]], owner: Mapping[int, int], stages: int
) -> dict[tuple[int, int], list[Action]]:
    """Sends of each (from, to) channel in the order in which the sender makes them; checks that work can proceed."""
    done: set[Action] = set()
    place = [0] * len(work)
    sent: dict[tuple[int, int], list[Action]] = defaultdict(list)
    waiting = deque(range(len(work)))
    idle = 0
    while waiting and idle < len(waiting):
        rank = waiting.popleft()
        moved = False
        while place[rank] < len(work[rank]) and _ready(work[rank][place[rank]], done, stages):
            action = work[rank][place[rank]]
            done.add(action)
            if (send := _send(action, owner, stages)) is not None:
                target = owner[_receive(send).stage]
                sent[rank, target].append(send)
            place[rank] += 1
            moved = True
        if place[rank] < len(work[rank]):
            waiting.append(rank)
        idle = 0 if moved else idle + 1
    if waiting:
        stuck = ", ".join(f"rank {rank} in {work[rank][place[rank]]}" for rank in sorted(waiting))
        raise ScheduleError(f"computations wait for each other: {stuck}")
    return sent


def _ready(action: Action, done: set[Action], stages: int) -> bool:
    """Whether everything that `action` reads has been computed somewhere."""
    stage, micro = action.stage, action.micro_batch
    if action.kind is Kind.F:
        return stage == 0 or Action(stage - 1, Kind.F, micro) in done
    if action.kind is Kind.W:
        return Action(stage, Kind.I, micro) in done
    if Action(stage, Kind.F, micro) not in done:
        return False
    return stage == stages - 1 or bool({Action(stage + 1, k, micro) for k in (Kind.B, Kind.I)} & done)
