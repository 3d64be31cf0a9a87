"""What repeated data is worth.

Muennighoff et al. 2023, arXiv 2305.16264: each repetition of unique data is worth less, exponentially, and so are
parameters in excess of what the unique data can feed.
"""

import math
from dataclasses import dataclass

from argosy.laws.loss import LossLaw
from argosy.laws.source import Source


@dataclass(frozen=True)
class RepetitionLaw:
    """A loss law whose tokens and parameters are replaced by what they are effectively worth."""

    base: LossLaw
    data_half_life: float
    """R_D*: repetitions after which new ones are worth 1/e."""
    parameter_half_life: float
    """R_N*: the same for excess parameters."""
    source: Source

    def effective_tokens(self, tokens: float, unique_tokens: float) -> float:
        """Unique tokens that would teach as much as `tokens` drawn from `unique_tokens`; their equation 5."""
        return _worth(tokens, min(tokens, unique_tokens), self.data_half_life)

    def effective_parameters(self, parameters: float, unique_tokens: float) -> float:
        """Parameters that would learn as much with enough data; their equation 6."""
        fed = min(parameters, self.base.optimal_parameters(unique_tokens))
        return _worth(parameters, fed, self.parameter_half_life)

    def loss(self, parameters: float, tokens: float, unique_tokens: float) -> float:
        """Expected loss in nats per token. Up to 4 epochs cost almost nothing; beyond 20 the law is unreliable."""
        seen = min(tokens, unique_tokens)
        return self.base.loss(self.effective_parameters(parameters, seen), self.effective_tokens(tokens, unique_tokens))


def _worth(amount: float, unique: float, half_life: float) -> float:
    """unique + unique · R* · (1 - exp(-R/R*)) with R = amount/unique - 1 repetitions."""
    repetitions = amount / unique - 1
    return unique - unique * half_life * math.expm1(-repetitions / half_life)


MUENNIGHOFF = RepetitionLaw(
    base=LossLaw(
        E=math.exp(0.6254804),
        A=math.exp(6.255414),
        B=math.exp(7.3049974),
        alpha=0.3526596,
        beta=0.3526596,
        source=Source("Muennighoff et al.", 2023, "arXiv 2305.16264, appendix A", "C4; both exponents tied"),
    ),
    data_half_life=15.387756,
    parameter_half_life=5.31,
    source=Source("Muennighoff et al.", 2023, "arXiv 2305.16264", "absolute loss on their released points is 10 % low"),
)
