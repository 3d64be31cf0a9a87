"""Schedules whose stages go down the ranks and back up: rank r has stages r and 2p - 1 - r, both ends are on rank 0.

The way back meets its own way down early, so all ranks hold equally much, and the loss is where the embedding is.
"""

from argosy.layout.action import Action, Kind, ScheduleError
from argosy.layout.schedule import Schedule
from argosy.layout.transfers import with_transfers


def zbv(ranks: int, micro_batches: int) -> Schedule:
    """ZB-V: 2·ranks stage activations on every rank, as much as 1F1B on its first; p - 1 units of bubble.

    Qi et al. 2024, arXiv 2405.15362, section 4. Raises ScheduleError for fewer than 2·ranks micro-batches, which
    cannot fill the V.
    """
    _check("zbv", ranks, micro_batches)
    work = []
    for rank in range(ranks):
        queue = _Queue(rank, 2 * ranks - 1 - rank, micro_batches)
        down, up, above = queue.down, queue.up, ranks - rank
        queue.add((down, Kind.F), times=2 * above - 1)
        queue.add((up, Kind.F), (down, Kind.F), times=rank)
        queue.add((up, Kind.F), (up, Kind.I), (up, Kind.W), times=above)
        while queue.done(up, Kind.F) < micro_batches:
            queue.add((down, Kind.F), (down, Kind.I), (down, Kind.W), (up, Kind.F), (up, Kind.I), (up, Kind.W))
        queue.add((down, Kind.I), (up, Kind.I), times=rank)
        queue.add((down, Kind.I), (down, Kind.W), times=above)
        queue.add((up, Kind.W), times=queue.done(up, Kind.I) - queue.done(up, Kind.W))
        queue.add((down, Kind.W), times=queue.done(down, Kind.I) - queue.done(down, Kind.W))
        work.append(queue.actions)
    return with_transfers("zbv", micro_batches, work, _owner(ranks))


def dualpipev(ranks: int, micro_batches: int) -> Schedule:
    """DualPipeV: forwards and backwards of the two halves alternate, so that a machine may run them as one; one stage
    activation more than :func:`zbv`.

    DeepSeek-V3, arXiv 2412.19437, section 3.2.1 (DualPipe), cut in half as its authors published it in 2025: one copy
    of the weights instead of two. Raises ScheduleError for fewer than 2·ranks micro-batches.
    """
    _check("dualpipev", ranks, micro_batches)
    work = []
    for rank in range(ranks):
        queue = _Queue(rank, 2 * ranks - 1 - rank, micro_batches)
        down, up, below = queue.down, queue.up, ranks - 1 - rank
        queue.add((down, Kind.F), times=2 * below)
        queue.add((down, Kind.F), (up, Kind.F), times=rank + 1)
        queue.add((up, Kind.I), (up, Kind.W), (up, Kind.F), times=below)
        pairs = ((down, Kind.F), (up, Kind.B), (up, Kind.F), (down, Kind.B))
        queue.add(*pairs, times=micro_batches - 2 * ranks + rank + 1)
        queue.add((up, Kind.B), (up, Kind.F), (down, Kind.B), times=below)
        # The first half of what is left is done whole, the second leaves its weights for the end
        for place, stage in enumerate((up, down) * (rank + 1)):
            queue.add((stage, Kind.B if place <= rank else Kind.I))
        for _ in range(below):
            queue.add_oldest_weights()
            queue.add((down, Kind.I))
        while queue.waiting:
            queue.add_oldest_weights()
        work.append(queue.actions)
    return with_transfers("dualpipev", micro_batches, work, _owner(ranks))


class _Queue:
    """Actions of one rank; the micro-batches of each stage and kind come in order."""

    def __init__(self, down: int, up: int, micro_batches: int):
        self.down = down
        self.up = up
        self.actions: list[Action] = []
        self.waiting: list[Action] = []
        """Weight gradients whose I is done, oldest first."""
        self._micro_batches = micro_batches
        self._done: dict[tuple[int, Kind], int] = {}

    def done(self, stage: int, kind: Kind) -> int:
        """Micro-batches of `stage` with `kind` in the queue; a B counts as its I and its W."""
        return self._done.get((stage, kind), 0)

    def add(self, *steps: tuple[int, Kind], times: int = 1) -> None:
        """Append the next micro-batch of each step, `times` over; a step that has had all of them is left out."""
        for stage, kind in steps * times:
            parts = (Kind.I, Kind.W) if kind is Kind.B else (kind,)
            micro = self.done(stage, parts[0])
            if micro == self._micro_batches:
                continue
            action = Action(stage, kind, micro)
            for part in parts:
                self._done[stage, part] = micro + 1
            if kind is Kind.I:
                self.waiting.append(Action(stage, Kind.W, micro))
            elif kind is Kind.W:
                self.waiting.remove(action)
            self.actions.append(action)

    def add_oldest_weights(self) -> None:
        """Append the W that has waited longest."""
        self.actions.append(self.waiting.pop(0))


def _check(name: str, ranks: int, micro_batches: int) -> None:
    if micro_batches < 2 * ranks:
        raise ScheduleError(f"{name} needs at least {2 * ranks} micro-batches for {ranks} ranks, not {micro_batches}")


def _owner(ranks: int) -> dict[int, int]:
    return {stage: min(stage, 2 * ranks - 1 - stage) for stage in range(2 * ranks)}
