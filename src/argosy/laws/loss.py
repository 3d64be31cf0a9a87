"""Loss as a function of parameters and tokens, and the optimum for a compute budget.

L(N, D) = E + A/N^alpha + B/D^beta in nats per token, with training compute C = 6·N·D FLOP.
Hoffmann et al. 2022, arXiv 2203.15556, section 3.3.
"""

from dataclasses import dataclass, field

from argosy.laws.source import Source

FLOPS_PER_PARAMETER_AND_TOKEN = 6
"""Forward 2, backward 4; attention scores not counted. The laws were fitted with this count."""


@dataclass(frozen=True)
class LossLaw:
    """Constants of the three-term law; `errors` are standard errors by field name where they were published."""

    E: float
    A: float
    B: float
    alpha: float
    beta: float
    source: Source
    errors: dict[str, float] = field(default_factory=dict, hash=False)

    def loss(self, parameters: float, tokens: float) -> float:
        """Expected loss in nats per token of a model trained once over `tokens`."""
        return self.E + self.A / parameters**self.alpha + self.B / tokens**self.beta

    def optimum(self, compute_flops: float) -> tuple[float, float]:
        """(parameters, tokens) of least loss for a training compute; their product is compute / 6."""
        pairs = compute_flops / FLOPS_PER_PARAMETER_AND_TOKEN
        total = self.alpha + self.beta
        return self._balance * pairs ** (self.beta / total), pairs ** (self.alpha / total) / self._balance

    def optimal_parameters(self, tokens: float) -> float:
        """Parameters that make `tokens` the optimal amount of data."""
        return self._balance * (tokens * self._balance) ** (self.beta / self.alpha)

    @property
    def compute_exponent(self) -> float:
        """g in L - E ∝ C^-g along the optimum."""
        return self.alpha * self.beta / (self.alpha + self.beta)

    @property
    def _balance(self) -> float:
        """G of the paper: where both terms fall equally fast per unit of compute."""
        return float((self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta)))


_HOFFMANN = Source("Hoffmann et al.", 2022, "arXiv 2203.15556, approach 3")
CHINCHILLA_PRINTED = LossLaw(
    E=1.69,
    A=406.4,
    B=410.7,
    alpha=0.34,
    beta=0.28,
    source=Source(_HOFFMANN.authors, _HOFFMANN.year, _HOFFMANN.where, "as printed; rounding alone biases predictions"),
)
CHINCHILLA = LossLaw(
    E=1.6934,
    A=406.4,
    B=410.7,
    alpha=0.3392,
    beta=0.2849,
    source=Source(
        _HOFFMANN.authors, _HOFFMANN.year, _HOFFMANN.where, "unrounded; does not fit the paper's own points well"
    ),
)
EPOCH_REPLICATION = LossLaw(
    E=1.8172,
    A=482.01,
    B=2085.43,
    alpha=0.3478,
    beta=0.3658,
    source=Source(
        "Besiroglu et al. (Epoch AI)",
        2024,
        "arXiv 2404.10102",
        "refit of 240 reconstructed points; the ratio D/N is weakly identified, the loss at the optimum well",
    ),
    errors={"E": 0.03, "A": 124.58, "B": 1293.23, "alpha": 0.02, "beta": 0.02},
)
"""The one to use unless a fit of one's own exists."""
