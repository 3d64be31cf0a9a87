"""What makes a pipeline schedule right, found by running its lists without any tensors."""

from collections import defaultdict, deque
from collections.abc import Sequence

from argosy.layout.action import WHOLE_STAGE, Action, Kind, ScheduleError

Ranks = Sequence[Sequence[Action]]

_SEND_OF = {Kind.RECV_F: (Kind.SEND_F, -1), Kind.RECV_B: (Kind.SEND_B, +1)}
_RECV_OF = {Kind.SEND_F: (Kind.RECV_F, +1), Kind.SEND_B: (Kind.RECV_B, -1)}


def check_schedule(stages: int, micro_batches: int, ranks: Ranks) -> None:
    """Raise ScheduleError when the lists would compute something wrong or never end."""
    owner = _owner(stages, ranks)
    _check_complete(stages, micro_batches, ranks)
    _Run(stages, micro_batches, ranks, owner).check()


def _owner(stages: int, ranks: Ranks) -> dict[int, int]:
    """Rank of each stage."""
    owner: dict[int, int] = {}
    for rank, actions in enumerate(ranks):
        for action in actions:
            if owner.setdefault(action.stage, rank) != rank:
                raise ScheduleError(f"stage {action.stage} is on rank {owner[action.stage]} and on rank {rank}")
    if owner.keys() != set(range(stages)):
        raise ScheduleError(f"stages {sorted(owner)} are not 0 … {stages - 1}")
    return owner


def _check_complete(stages: int, micro_batches: int, ranks: Ranks) -> None:
    """Every micro-batch passes every stage forward and backward exactly once; every transfer has two ends."""
    seen: set[Action] = set()
    for action in (action for actions in ranks for action in actions):
        if action.kind in WHOLE_STAGE:
            if action.micro_batch is not None:
                raise ScheduleError(f"{action} concerns the whole stage, not a micro-batch")
            continue
        if action.micro_batch is None or not 0 <= action.micro_batch < micro_batches:
            raise ScheduleError(f"{action} has no micro-batch below {micro_batches}")
        if action in seen:
            raise ScheduleError(f"{action} happens twice")
        seen.add(action)

    for stage in range(stages):
        for micro in range(micro_batches):
            has = {kind for kind in (Kind.F, Kind.B, Kind.I, Kind.W) if Action(stage, kind, micro) in seen}
            if has not in ({Kind.F, Kind.B}, {Kind.F, Kind.I, Kind.W}):
                raise ScheduleError(f"stage {stage} micro-batch {micro} needs F and either B, or I and W; not {has}")

    for action in seen:
        if end := (_SEND_OF | _RECV_OF).get(action.kind):
            other = Action(action.stage + end[1], end[0], action.micro_batch)
            if other not in seen:
                raise ScheduleError(f"{action} has no {other} at the other end")


class _Run:
    """Execution of all lists without tensors: a send is posted and forgotten, a receive waits for the oldest send
    on its channel."""

    def __init__(self, stages: int, micro_batches: int, ranks: Ranks, owner: dict[int, int]):
        self.stages = stages
        self.micro_batches = micro_batches
        self.ranks = ranks
        self.owner = owner
        self.done: set[Action] = set()
        self.freed: set[int] = set()
        self.channels: dict[tuple[int, int], deque[Action]] = defaultdict(deque)
        self.position = [0] * len(ranks)

    def check(self) -> None:
        # A rank that can move loses nothing by moving, so any order of ranks finds every deadlock.
        moved = True
        while moved:
            moved = False
            for rank in range(len(self.ranks)):
                while self.step(rank):
                    moved = True
        waiting = [
            f"rank {rank} waits in {actions[self.position[rank]]}"
            for rank, actions in enumerate(self.ranks)
            if self.position[rank] < len(actions)
        ]
        if waiting:
            raise ScheduleError(f"deadlock: {', '.join(waiting)}")

    def step(self, rank: int) -> bool:
        """Do the next action of `rank`; False when it has to wait or has none."""
        if self.position[rank] == len(self.ranks[rank]):
            return False
        action = self.ranks[rank][self.position[rank]]
        if action.kind in _SEND_OF:
            kind, offset = _SEND_OF[action.kind]
            channel = self.channels[self.owner[action.stage + offset], rank]
            if not channel:
                return False
            arrived = channel.popleft()
            if arrived != Action(action.stage + offset, kind, action.micro_batch):
                raise ScheduleError(f"rank {rank} expects {action}, but {arrived} arrives")
        self.check_needs(action)
        if action.kind in _RECV_OF:
            self.channels[rank, self.owner[action.stage + _RECV_OF[action.kind][1]]].append(action)
        elif action.kind is Kind.RESHARD:
            self.freed.add(action.stage)
        elif action.kind is Kind.UNSHARD:
            self.freed.discard(action.stage)
        self.done.add(action)
        self.position[rank] += 1
        return True

    def check_needs(self, action: Action) -> None:
        """Raise when something that `action` reads, on its own rank, is not there yet."""
        stage, kind, micro = action.stage, action.kind, action.micro_batch
        if kind in (Kind.F, Kind.B, Kind.I, Kind.W) and stage in self.freed:
            raise ScheduleError(f"{action} comes after RESHARD without UNSHARD")
        for choice in self.needs(stage, kind, micro):
            if not choice & self.done:
                raise ScheduleError(f"{action} comes before {' or '.join(str(need) for need in sorted(choice))}")

    def needs(self, stage: int, kind: Kind, micro: int | None) -> list[set[Action]]:
        """Of each set one action must be done before."""
        match kind:
            case Kind.F if stage > 0:
                return [self.arrival(stage, stage - 1, Kind.RECV_F, {Kind.F}, micro)]
            case Kind.B | Kind.I if stage < self.stages - 1:
                gradient = self.arrival(stage, stage + 1, Kind.RECV_B, {Kind.B, Kind.I}, micro)
                return [{Action(stage, Kind.F, micro)}, gradient]
            case Kind.B | Kind.I | Kind.SEND_F:
                return [{Action(stage, Kind.F, micro)}]
            case Kind.SEND_B:
                return [{Action(stage, Kind.B, micro), Action(stage, Kind.I, micro)}]
            case Kind.W:
                return [{Action(stage, Kind.I, micro)}]
            case Kind.REDUCE:
                return [{Action(stage, Kind.B, m), Action(stage, Kind.W, m)} for m in range(self.micro_batches)]
            case _:
                return []

    def arrival(self, stage: int, neighbour: int, receive: Kind, local: set[Kind], micro: int | None) -> set[Action]:
        """What brings data from `neighbour`: a receive, or its own computation when both stages share a rank."""
        if self.owner[stage] == self.owner[neighbour]:
            return {Action(neighbour, kind, micro) for kind in local}
        return {Action(stage, receive, micro)}
