"""How many machines should wait for others to fail."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SparePolicy:
    """Enough spares that with probability `confidence` no failure finds none."""

    confidence: float = 0.99

    def spares(self, nodes: int, failures_per_node_s: float, refill_s: float) -> int:
        """The smallest s with P(at most s of `nodes` fail within `refill_s`) ≥ confidence.

        Failures are independent with probability q = rate · refill time each, so the count is binomial.
        """
        q = min(1.0, failures_per_node_s * refill_s)
        covered = 0.0
        for spares in range(nodes + 1):
            covered += _binomial(nodes, spares, q)
            if covered >= self.confidence:
                return spares
        return nodes


def _binomial(n: int, k: int, q: float) -> float:
    """P(exactly k of n), through logarithms: (1-q)^n underflows for large n."""
    if q in (0.0, 1.0):
        return float(k == n * q)
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(choose + k * math.log(q) + (n - k) * math.log1p(-q))
