"""The alphabet of pipeline schedules."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What an action does (INTERFACES 1)."""

    F = "F"  # forward of a stage on a micro-batch
    B = "B"  # whole backward
    I = "I"  # noqa: E741  backward to the stage's input only
    W = "W"  # backward to the stage's weights only; I then W equals B
    SEND_F = "SEND_F"  # activation to the next stage
    RECV_F = "RECV_F"  # activation from the stage before
    SEND_B = "SEND_B"  # gradient to the stage before
    RECV_B = "RECV_B"  # gradient from the next stage
    UNSHARD = "UNSHARD"  # gather the stage's parameters
    RESHARD = "RESHARD"  # free them
    REDUCE = "REDUCE"  # reduce the stage's gradients over the data-parallel ranks


WHOLE_STAGE = frozenset({Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE})
"""Kinds that concern no single micro-batch."""


@dataclass(frozen=True, order=True)
class Action:
    """One thing that the pipeline rank that owns `stage` does; `micro_batch` is None for whole-stage kinds."""

    stage: int
    kind: Kind
    micro_batch: int | None = None

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{'' if self.micro_batch is None else self.micro_batch}"


class ScheduleError(ValueError):
    """A schedule that would compute something wrong, or never end: a mistake of its builder."""
