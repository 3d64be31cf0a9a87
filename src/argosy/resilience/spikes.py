"""Loss spikes: told from noise by the scatter of the last losses, and from level shifts by their shape.

The centre is the median of the last :data:`WINDOW` losses and the scatter their median absolute deviation, so neither
a single outlier nor a slow fall of the loss moves the band much. A spike is a loss far above the band for
:data:`SUSTAINED` steps in a row *and* far in relation to the loss itself: harder text that raises the loss for good by
a few per cent (a level shift) stays below that, and the window then takes it as the new level.
"""

import math
import statistics
from collections import deque

WINDOW = 64
ENOUGH = 24
"""Losses before anything is judged."""
SIGMAS = 8.0
RELATIVE = 0.25
"""Least excess as a share of the centre: smaller ones are a matter of data, not of a fault."""
SUSTAINED = 3
_TO_SIGMA = 1.4826  # of a normal distribution's median absolute deviation


class LossSpike(RuntimeError):
    """The loss left its band and stayed out; the same on all ranks."""

    fault_class = "loss_spike"
    guilty_rank = None

    def __init__(self, first_step: int, step: int, loss: float, centre: float):
        super().__init__(f"loss {loss:.4g} is far above {centre:.4g} since step {first_step}")
        self.good_until = first_step
        """State after this many updates: before the first step that was out."""
        self.bad_until = step


class SpikeDetector:
    """Show it each step's loss, which is the same on all ranks, so all conclude the same."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._out: list[int] = []

    def look(self, step: int, loss: float) -> None:
        """Raises LossSpike when `loss`, of the update after `step` others, makes a spike certain."""
        if not math.isfinite(loss):
            return  # the update guard's
        if len(self._losses) >= ENOUGH and loss > self.limit:
            self._out.append(step)
            if len(self._out) >= SUSTAINED:
                raise LossSpike(self._out[0], step, loss, statistics.median(self._losses))
            return  # what is out of the band does not widen it
        self._out.clear()
        self._losses.append(loss)

    @property
    def limit(self) -> float:
        centre = statistics.median(self._losses)
        scatter = _TO_SIGMA * statistics.median(abs(loss - centre) for loss in self._losses)
        return centre + max(SIGMAS * scatter, RELATIVE * abs(centre))
