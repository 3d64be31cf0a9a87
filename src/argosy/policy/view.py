"""What a policy may know: a view of the run at one moment, the same in the engine and in the simulator."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

Tier = Literal["memory", "storage"]
"""Where a saved state lies; only `storage` survives the machines."""


@dataclass(frozen=True)
class View:
    """Everything that :mod:`argosy.policy` decides from (INTERFACES 6). Unknown is None or an absent key, never 0."""

    now_s: float
    """Seconds on any clock that only goes forward."""
    step: int
    """Updates done in the kept lineage."""
    step_time_s: float | None = None
    """Expected time of the next step."""
    save_cost_s: dict[Tier, float] = field(default_factory=dict)
    """Time a save keeps the step waiting."""
    restart_cost_s: dict[str, float] = field(default_factory=dict)
    """From failure to the first new step, per rung of the recovery ladder, without lost work."""
    failure_rate_per_s: float | None = None
    """Failures of the whole job."""
    committed_step: dict[Tier, int] = field(default_factory=dict)
    """Newest durable step; absent before the first."""
    restarts_since_commit: int = 0
    """Restarts since the last storage commit that made progress."""
    spares: int = 0
    """Healthy devices that wait."""
    world_size: int = 1
    price_per_s: Fraction | None = None
    """Price of everything that is paid for the job, in the run's currency."""
