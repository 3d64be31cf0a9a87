"""What happens to a run: the moments at which a policy is asked."""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class StepDone:
    """An update ended; `view.step` counts it."""


@dataclass(frozen=True)
class BeforeStep:
    """A step is about to start."""

    paid_device_ns: int
    """Device-nanoseconds paid so far, over all attempts."""
    paid_money: Fraction | None
    """Cost so far; None when there is no price."""
    since_created_s: float
    """Time since the run was created, stops included."""
    closing_s: float = 0.0
    """Time that ending takes besides the save: last evaluation, teardown."""


@dataclass(frozen=True)
class Evaluated:
    """An evaluation ended."""

    losses: tuple[float, ...]
    """Loss of each evaluation of the kept lineage so far, oldest first, in nats per token."""


@dataclass(frozen=True)
class NonFiniteUpdate:
    """The gradients of a step are not finite."""

    in_a_row: int
    """Steps with such gradients up to this one, this one included."""


@dataclass(frozen=True)
class RanksLost:
    """Ranks died or were found unfit."""

    ranks: tuple[int, ...]
    hardware: bool = False
    """The machine is to blame, so the same machine would fail again."""
    out_of_memory: bool = False
    """Their memory ran out: the same step needs the same memory again."""
    good_until: int | None = None
    """The state after this many updates is above suspicion; None: all of it is."""
    at_this_place: int = 0
    """Earlier losses of the same kind, rank and step since the last commit."""


@dataclass(frozen=True)
class CapacityChanged:
    """Another number of healthy devices is there than the job uses."""

    available: int


Event = StepDone | BeforeStep | Evaluated | NonFiniteUpdate | RanksLost | CapacityChanged
