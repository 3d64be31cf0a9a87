"""What a policy may answer: a closed set (INTERFACES 6)."""

from dataclasses import dataclass

from argosy.errors import Exit
from argosy.policy.view import Tier


@dataclass(frozen=True)
class Wait:
    """Nothing to do now."""


@dataclass(frozen=True)
class Save:
    """Save a state now."""

    tier: Tier


@dataclass(frozen=True)
class Skip:
    """Leave this update out, without a trace in weights or moments."""


@dataclass(frozen=True)
class RebuildGroups:
    """Survivors rebuild their process groups; only dead ranks start anew."""


@dataclass(frozen=True)
class RestartWorkers:
    """All workers start anew on the same devices."""


@dataclass(frozen=True)
class UseSpare:
    """Waiting devices take the place of the lost ones."""


@dataclass(frozen=True)
class Shrink:
    """Go on with a world size of `n`, smaller than now."""

    n: int


@dataclass(frozen=True)
class Grow:
    """Go on with a world size of `n`, larger than now."""

    n: int


@dataclass(frozen=True)
class RollBack:
    """Go back to the state after `step`."""

    step: int


@dataclass(frozen=True)
class Stop:
    """End the run; `reason` names the limit or the fault."""

    exit_code: Exit
    reason: str


Action = Wait | Save | Skip | RebuildGroups | RestartWorkers | UseSpare | Shrink | Grow | RollBack | Stop
