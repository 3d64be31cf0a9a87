"""A pipeline schedule as a picture: what each rank does in each unit of time."""

from dataclasses import asdict, dataclass
from typing import Any

from argosy.layout.action import Action
from argosy.layout.play import StageTimes, play
from argosy.layout.schedule import Schedule

CELL = 2
"""Characters of a unit of time: the kind of work, and the last digit of the micro-batch."""
LEGEND = (
    "F forward, B backward, I its part for inputs, W that for weights, each with its micro-batch; "
    "lower case: a rank's second, fourth, … stage; · idle"
)


@dataclass(frozen=True)
class Span:
    """One computation in unit time."""

    stage: int
    chunk: int
    """How many stages the rank has before this one."""
    kind: str
    """F, B, I or W."""
    micro_batch: int
    start: int
    end: int


@dataclass(frozen=True)
class Picture:
    """The computations of each rank. A forward and each half of a backward take one unit on every stage."""

    ranks: tuple[tuple[Span, ...], ...]
    units: int

    @property
    def idle_units(self) -> tuple[int, ...]:
        """Of each rank."""
        return tuple(self.units - sum(span.end - span.start for span in spans) for spans in self.ranks)

    def lines(self) -> list[str]:
        """One line of text per rank, :data:`CELL` characters per unit of time."""
        return [self._line(spans) for spans in self.ranks]

    def to_json(self) -> dict[str, Any]:
        """Spans by rank, for pages that draw it themselves."""
        return {"units": self.units, "ranks": [[asdict(span) for span in spans] for spans in self.ranks]}

    def _line(self, spans: tuple[Span, ...]) -> str:
        cells = [" ·"] * self.units
        for span in spans:
            for unit in range(span.start, span.end):
                letter = span.kind.lower() if span.chunk % 2 else span.kind
                cells[unit] = f"{letter}{span.micro_batch % 10}"
        return "".join(cells)


def picture(schedule: Schedule) -> Picture:
    """The picture of `schedule`."""
    rows: list[list[Span]] = [[] for _ in schedule.ranks]
    stages = [sorted({action.stage for action in actions}) for actions in schedule.ranks]

    def note(rank: int, action: Action, start: float, end: float) -> None:
        assert action.micro_batch is not None
        chunk = stages[rank].index(action.stage)
        rows[rank].append(Span(action.stage, chunk, str(action.kind), action.micro_batch, round(start), round(end)))

    played = play(schedule, [StageTimes(1.0, 2.0)] * schedule.stages, on_action=note)
    return Picture(tuple(map(tuple, rows)), round(played.total_s))
