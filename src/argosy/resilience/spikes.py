"""Loss spikes: told from noise by the scatter of the last losses, and from level shifts by their shape.

The centre is the median of the last :data:`RECENT` losses. The scatter is that of differences between neighbours, which
a falling loss does not widen as it widens the spread of the losses themselves; by medians, so that a single outlier
does not count. A spike is a loss far above the centre for :data:`SUSTAINED` steps in a row *and* far in relation to the
loss itself: harder text that raises the loss for good by a few per cent (a level shift) stays below that, and the
centre follows it.
"""

import math
import statistics
from collections import deque
from itertools import pairwise

WINDOW = 64
RECENT = 16
ENOUGH = 24
"""Losses before anything is judged."""
SIGMAS = 8.0
RELATIVE = 0.25
"""Least excess as a share of the centre: smaller ones are a matter of data, not of a fault."""
SUSTAINED = 3
_TO_SIGMA = 1.4826 / math.sqrt(2)  # from the median absolute difference of two normal values


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
                raise LossSpike(self._out[0], step, loss, self.centre)
            return  # what is out of the band does not widen it
        self._out.clear()
        self._losses.append(loss)

    @property
    def centre(self) -> float:
        return statistics.median(list(self._losses)[-RECENT:])

    @property
    def limit(self) -> float:
        scatter = _TO_SIGMA * statistics.median(abs(after - before) for before, after in pairwise(self._losses))
        return self.centre + max(SIGMAS * scatter, RELATIVE * abs(self.centre))
