"""The first scaling laws of language models; kept for comparison, not for planning.

Kaplan et al. 2020, arXiv 2001.08361. They count parameters without embeddings, which at small scale makes the optimal
model look too large (Pearce and Song 2024; Porian et al. 2024).
"""

from dataclasses import dataclass

from argosy.laws.source import Source


@dataclass(frozen=True)
class KaplanLaw:
    """L(N, D) = ((Nc/N)^(aN/aD) + Dc/D)^aD, their equation 1.5, and the critical batch size, equation 1.4."""

    Nc: float
    Dc: float
    alpha_n: float
    alpha_d: float
    critical_batch_tokens: float
    critical_batch_exponent: float
    source: Source

    def loss(self, non_embedding_parameters: float, tokens: float) -> float:
        """Loss in nats per token when training is stopped before it overfits."""
        ratio = (self.Nc / non_embedding_parameters) ** (self.alpha_n / self.alpha_d) + self.Dc / tokens
        return float(ratio**self.alpha_d)

    def critical_batch(self, loss: float) -> float:
        """Batch in tokens at which time and compute efficiency balance, at `loss` nats per token."""
        return float(self.critical_batch_tokens / loss ** (1 / self.critical_batch_exponent))


KAPLAN = KaplanLaw(
    Nc=6.4e13,
    Dc=1.8e13,
    alpha_n=0.076,
    alpha_d=0.103,
    critical_batch_tokens=2e8,
    critical_batch_exponent=0.21,
    source=Source("Kaplan et al.", 2020, "arXiv 2001.08361, table 2 and equation 1.4", "joint fit; WebText2"),
)
