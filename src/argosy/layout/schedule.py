"""Pipeline schedules as data: one list of actions per pipeline rank, checked when built.

The engine executes the lists, the simulator times them, the planner costs them: all read the same.
"""

from dataclasses import dataclass

from argosy.layout.action import Action, Kind
from argosy.layout.check import check_schedule


@dataclass(frozen=True)
class Schedule:
    """A pipeline schedule: ``ranks[r]`` is what pipeline rank r does, in order.

    Building one checks it (see :mod:`argosy.layout.check`): every action once, nothing before what it needs,
    transfers paired and in one order at both ends, no deadlock. The executor posts sends without waiting for them.
    """

    name: str
    stages: int
    micro_batches: int
    ranks: tuple[tuple[Action, ...], ...]

    def __post_init__(self) -> None:
        check_schedule(self.stages, self.micro_batches, self.ranks)

    def stage_rank(self) -> dict[int, int]:
        """Which pipeline rank owns each stage."""
        return {action.stage: rank for rank, actions in enumerate(self.ranks) for action in actions}

    def max_in_flight(self, rank: int) -> int:
        """Most activations (micro-batches, over all its stages) that `rank` holds at once."""
        held = most = 0
        for action in self.ranks[rank]:
            held += (action.kind is Kind.F) - (action.kind in (Kind.B, Kind.W))
            most = max(most, held)
        return most


def gpipe(stages: int, micro_batches: int) -> Schedule:
    """All forwards, then all backwards; every rank holds all micro-batches. Huang et al. 2019, arXiv 1811.06965."""
    work = [Kind.F] * micro_batches + [Kind.B] * micro_batches
    return _one_stage_per_rank("gpipe", stages, micro_batches, [work] * stages)


def one_forward_one_backward(stages: int, micro_batches: int) -> Schedule:
    """1F1B: rank r runs ahead by at most ``stages - r`` micro-batches and holds no more.

    Narayanan et al. 2019 (PipeDream), in the flushing form of 2021, arXiv 2104.04473.
    """
    work = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, micro_batches)
        steady = micro_batches - ahead
        work.append([Kind.F] * ahead + [Kind.F, Kind.B] * steady + [Kind.B] * ahead)
    return _one_stage_per_rank("1f1b", stages, micro_batches, work)


def _one_stage_per_rank(name: str, stages: int, micro_batches: int, work: list[list[Kind]]) -> Schedule:
    """Number the micro-batches of each kind in order and put each transfer next to its computation."""
    ranks = []
    for stage, kinds in enumerate(work):
        actions: list[Action] = []
        next_micro = {Kind.F: 0, Kind.B: 0}
        for kind in kinds:
            micro = next_micro[kind]
            next_micro[kind] += 1
            receives, sends = (stage > 0, stage < stages - 1) if kind is Kind.F else (stage < stages - 1, stage > 0)
            if receives:
                actions.append(Action(stage, Kind[f"RECV_{kind}"], micro))
            actions.append(Action(stage, kind, micro))
            if sends:
                actions.append(Action(stage, Kind[f"SEND_{kind}"], micro))
        actions.append(Action(stage, Kind.REDUCE))
        ranks.append(tuple(actions))
    return Schedule(name, stages, micro_batches, tuple(ranks))
