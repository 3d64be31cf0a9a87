"""Model FLOPs utilisation: observed tokens/s ÷ tokens/s at the peak (PaLM, Chowdhery et al. 2022, appendix B).

Only against a peak that is known: measured on this machine and written into the journal as a `peak`
record, or from the catalogue of data sheets. A ratio above 1 means the peak is wrong, and is not shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from argosy.ledger.report_model import Utilisation
from argosy.recipe.flops import model_flops_per_token
from argosy.recipe.schema import Recipe


@dataclass(frozen=True)
class KnownPeak:
    """What one rank could multiply per second, and who says so."""

    flops_per_s: float
    source: str


def known_peak(records: Iterable[Mapping[str, Any]], dtype: str) -> KnownPeak | None:
    """The newest `peak` record for `dtype`, or None."""
    fitting = [r for r in records if r.get("k") == "peak" and r.get("dtype") == dtype and r.get("flops_per_s")]
    if not fitting:
        return None
    newest = fitting[-1]
    return KnownPeak(float(newest["flops_per_s"]), " ".join((dtype, newest.get("src", "peak"), newest.get("date", ""))))


def flops_per_token(recipe: Recipe, vocab_size: int | None = None) -> int | None:
    """Model FLOPs of one trained token, or None when neither recipe nor caller knows the vocabulary."""
    vocab_size = vocab_size or recipe.vocab_size
    if vocab_size is None:
        return None
    return model_flops_per_token(recipe.model, vocab_size, recipe.data.sequence_length)


def utilisation(
    tokens_per_s: float | None,
    flops_per_token: float | None,
    ranks: int | None,
    peak: KnownPeak | None,
    recompute: str = "none",
) -> Utilisation:
    """MFU and HFU, or why they are unknown.

    `tokens_per_s` is of all ranks together, `flops_per_token` forward and backward of the model without
    recomputation, `peak` of one rank. HFU counts recomputed FLOPs too; without recomputation it equals MFU.
    """
    why, mfu = None, None
    if tokens_per_s is None or not ranks:
        why = "no step has been measured"
    elif flops_per_token is None:
        why = "the size of the vocabulary is not known"
    elif peak is None:
        why = "no peak is known for this device"
    else:
        mfu = tokens_per_s * flops_per_token / (ranks * peak.flops_per_s)
        if mfu > 1:
            why, mfu = f"peak stale ({mfu:.1%} of it)", None
    return Utilisation(
        mfu=mfu,
        hfu=mfu if recompute == "none" else None,
        why=why,
        tokens_per_s=tokens_per_s,
        flops_per_token=flops_per_token,
        ranks=ranks,
        peak_flops_per_s=peak.flops_per_s if peak else None,
        peak_source=peak.source if peak else None,
    )
