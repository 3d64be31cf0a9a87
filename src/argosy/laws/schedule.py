"""Loss along a learning-rate schedule.

Tissue et al. 2024, arXiv 2408.11029: L(s) = L0 + A · S1^-alpha - C · S2, where S1 is the area under the learning
rate and S2 rewards its decay, with momentum. L0, A, alpha and C depend on model and data, so they are fitted, not
published; only the decay of the momentum is taken as a constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from argosy.laws.source import Source

MOMENTUM_DECAY = 0.999
"""lambda of the paper, per step; its authors report 0.99 to 0.999 and use 0.999."""

TISSUE = Source("Tissue et al.", 2024, "arXiv 2408.11029, section 3")


def areas(rates: Sequence[float], decay: float = MOMENTUM_DECAY) -> list[tuple[float, float]]:
    """(S1, S2) after each step of a schedule, `rates` being the learning rate of each step.

    S1(s) = sum of rates up to s. S2(s) = sum over i ≤ s of m_i with m_i = decay · m_(i-1) + (rate_(i-1) - rate_i).
    """
    result = []
    forward = annealed = momentum = 0.0
    before = rates[0] if rates else 0.0
    for rate in rates:
        forward += rate
        momentum = decay * momentum + (before - rate)
        annealed += momentum
        before = rate
        result.append((forward, annealed))
    return result


@dataclass(frozen=True)
class ScheduleLaw:
    """Fitted constants of one model on one data set; losses in nats per token."""

    L0: float
    A: float
    alpha: float
    C: float
    decay: float = MOMENTUM_DECAY

    def losses(self, rates: Sequence[float]) -> list[float]:
        """Expected loss after each step of a schedule. Warm-up steps count at the peak rate, as in the paper."""
        return [
            self.L0 + self.A * forward**-self.alpha - self.C * annealed
            for forward, annealed in areas(_without_warmup(rates), self.decay)
        ]


def _without_warmup(rates: Sequence[float]) -> list[float]:
    peak = max(rates, default=0.0)
    reached = rates.index(peak) if rates else 0
    return [peak] * reached + list(rates[reached:])
