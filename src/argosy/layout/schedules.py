"""All pipeline schedules by name: how to build each, and what it needs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from argosy.errors import UsageError
from argosy.layout.interleaved import interleaved_1f1b, looped_bfs
from argosy.layout.schedule import Schedule, gpipe, one_forward_one_backward
from argosy.layout.v_shaped import dualpipev, zbv
from argosy.layout.zero_bubble import interleaved_zero_bubble, zero_bubble


@dataclass(frozen=True)
class Form:
    """What kind of schedule a name stands for."""

    build: Callable[[int, int, int], Schedule]
    """Called with ranks, virtual stages, micro-batches."""
    least_virtual_stages: int = 1
    most_virtual_stages: int | None = None
    """None: as many as there are layers for."""
    rounds: int = 0
    """Micro-batches it needs at least, in multiples of the ranks; 0: a single one will do."""
    whole_rounds: bool = False
    """Whether the number of micro-batches must be a multiple of the ranks."""
    v_shaped: bool = False
    """Whether a rank has stages r and 2p-1-r, instead of every p-th."""

    def has(self, virtual_stages: int) -> bool:
        """Whether it may have so many stages on each rank."""
        return self.least_virtual_stages <= virtual_stages <= (self.most_virtual_stages or virtual_stages)

    @property
    def stages_per_rank(self) -> str:
        """What it :meth:`has`, in words."""
        if self.most_virtual_stages is None:
            return f"needs at least {self.least_virtual_stages} stages per rank"
        return f"has {self.least_virtual_stages} stage{'s' * (self.least_virtual_stages > 1)} per rank"

    def accepts(self, ranks: int, micro_batches: int) -> bool:
        """Whether the schedule exists for so many micro-batches."""
        return micro_batches >= max(1, self.rounds * ranks) and not (self.whole_rounds and micro_batches % ranks)

    def needs(self, ranks: int) -> str:
        """What it accepts, in words."""
        if self.whole_rounds:
            return f"a multiple of {ranks} micro-batches"
        return f"at least {max(1, self.rounds * ranks)} micro-batches"


SCHEDULES: dict[str, Form] = {
    "gpipe": Form(lambda ranks, _, micro: gpipe(ranks, micro), 1, 1),
    "1f1b": Form(lambda ranks, _, micro: one_forward_one_backward(ranks, micro), 1, 1),
    "interleaved_1f1b": Form(interleaved_1f1b, 2, rounds=1, whole_rounds=True),
    "looped_bfs": Form(looped_bfs, 2),
    "zero_bubble": Form(lambda ranks, _, micro: zero_bubble(ranks, micro), 1, 1),
    "interleaved_zero_bubble": Form(interleaved_zero_bubble, 2, rounds=1, whole_rounds=True),
    "zbv": Form(lambda ranks, _, micro: zbv(ranks, micro), 2, 2, rounds=2, v_shaped=True),
    "dualpipev": Form(lambda ranks, _, micro: dualpipev(ranks, micro), 2, 2, rounds=2, v_shaped=True),
}
"""By the name in a layout."""


@cache
def build(name: str, ranks: int, virtual_stages: int, micro_batches: int) -> Schedule:
    """The schedule called `name`, checked.

    Raises UsageError for an unknown name, and where there is no such schedule of so many micro-batches.
    """
    form = SCHEDULES.get(name)
    if form is None:
        raise UsageError(f"unknown schedule {name!r}", where="layout.schedule", do=f"use one of {', '.join(SCHEDULES)}")
    if not form.accepts(ranks, micro_batches):
        raise UsageError(
            f"schedule {name} on {ranks} ranks needs {form.needs(ranks)}, not {micro_batches}", where="layout.schedule"
        )
    return form.build(ranks, virtual_stages, micro_batches)
