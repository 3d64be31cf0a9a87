"""A learning rate and a batch to start from, by compute alone.

DeepSeek-AI 2024, arXiv 2401.02954, section 3.1: rate = 0.3118 · C^-0.1250 and batch = 0.2920 · C^0.3271 tokens, fitted
to runs of 1e17 to 2e19 FLOP with AdamW. Hoffmann et al. 2022, arXiv 2203.15556, table 3: about 20 tokens per parameter
give the best model of a given compute. These are first guesses; the lab measures better ones.
"""

import math

TOKENS_PER_PARAMETER = 20


def learning_rate(compute_flops: float) -> float:
    """Peak learning rate, to two digits."""
    rate = 0.3118 * compute_flops**-0.1250
    return round(rate, 1 - math.floor(math.log10(rate)))


def batch_tokens(compute_flops: float) -> int:
    """Tokens of a global batch, as a power of two: the fit is not sharper than that."""
    return 2 ** round(math.log2(0.2920 * compute_flops**0.3271))
