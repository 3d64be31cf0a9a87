"""Time of a pipeline schedule: the very action lists that the engine runs, played with given durations."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from argosy.layout.action import Action, Kind
from argosy.layout.schedule import Schedule


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one stage on one micro-batch."""

    forward_s: float
    backward_s: float
    """Both parts of the backward."""
    weights_share: float = 0.5
    """Part of the backward that only weight gradients need."""


@dataclass(frozen=True)
class Played:
    """One step of a pipeline, played."""

    total_s: float
    busy_s: tuple[float, ...]
    """Computing time of each rank."""

    @property
    def bubble_s(self) -> float:
        """Idle time of the busiest rank."""
        return self.total_s - max(self.busy_s)


def play(
    schedule: Schedule,
    stages: Sequence[StageTimes],
    transfer_s: float = 0.0,
    on_action: Callable[[int, Action, float, float], None] | None = None,
) -> Played:
    """Run all lists: computations take their stage's time, a transfer arrives `transfer_s` after it was sent.

    Sends cost the sender nothing and a receive waits, as the executor does it.
    `on_action(rank, action, start_s, end_s)` is told every computation.
    """
    owner = schedule.stage_rank()
    clock = [0.0] * len(schedule.ranks)
    busy = [0.0] * len(schedule.ranks)
    place = [0] * len(schedule.ranks)
    mail: dict[tuple[int, int], deque[float]] = defaultdict(deque)
    runnable = deque(range(len(schedule.ranks)))
    while runnable:
        rank = runnable.popleft()
        actions = schedule.ranks[rank]
        while place[rank] < len(actions):
            action = actions[place[rank]]
            stage, kind = action.stage, action.kind
            if kind in (Kind.RECV_F, Kind.RECV_B):
                source = owner[stage - 1 if kind is Kind.RECV_F else stage + 1]
                if not mail[source, rank]:
                    break
                clock[rank] = max(clock[rank], mail[source, rank].popleft())
            elif kind in (Kind.SEND_F, Kind.SEND_B):
                target = owner[stage + 1 if kind is Kind.SEND_F else stage - 1]
                mail[rank, target].append(clock[rank] + transfer_s)
                runnable.append(target)
            elif kind in (Kind.F, Kind.B, Kind.I, Kind.W):
                t = stages[stage]
                seconds = {
                    Kind.F: t.forward_s,
                    Kind.B: t.backward_s,
                    Kind.I: t.backward_s * (1.0 - t.weights_share),
                    Kind.W: t.backward_s * t.weights_share,
                }[kind]
                if on_action is not None:
                    on_action(rank, action, clock[rank], clock[rank] + seconds)
                clock[rank] += seconds
                busy[rank] += seconds
            place[rank] += 1
    return Played(max(clock), tuple(busy))
