"""The training loop's own state: what must survive a restart beside weights and moments."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class LoopState:
    """Plain data, stored in the manifest of each checkpoint."""

    step: int = 0
    """Steps done; also the index of the next step, and with the batch size the data position."""
    loss_tokens: int = 0
    """Tokens that carried loss in all steps so far."""
    skipped: int = 0
    """Updates skipped for non-finite gradients."""
    skipped_in_row: int = 0
    eval_losses: list[float] = field(default_factory=list)
    """Every evaluation loss so far, in order: the stop rules look at all of it."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "LoopState":
        return cls(**values)
