"""The training loop's own state: what must survive a restart beside weights and moments."""

from dataclasses import asdict, dataclass, field
from typing import Any

from argosy.data.position import Position


@dataclass
class LoopState:
    """Plain data, stored in the manifest of each checkpoint."""

    step: int = 0
    """Steps done; also the index of the next step."""
    position: Position | None = None
    """Where the run stands in its data; None in states of earlier versions."""
    loss_tokens: int = 0
    """Tokens that carried loss in all steps so far."""
    skipped: int = 0
    """Updates skipped for non-finite gradients."""
    skipped_in_row: int = 0
    eval_losses: list[float] = field(default_factory=list)
    """Every evaluation loss so far, in order: the stop rules look at all of it."""

    evaluation_due: bool = False
    """The evaluation after `step` was broken off; it comes before the next step."""
    stepped_over: list[int] = field(default_factory=list)
    """Incidents whose batches are left out."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"position": self.position and self.position.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "LoopState":
        position = values.get("position")
        return cls(**values | {"position": position and Position.from_dict(position)})
