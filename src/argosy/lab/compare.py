"""Is the gain the algorithm's or luck's: tests of two arms with several seeds each.

Losses: lower is better; a gain is baseline minus variant, in the metric's unit. Intervals come first, p-values second.

* Welch's t by default: arms differ in noise, and pooling is unsafe. Pairs (same seed and data order) help only by the
  correlation that they have, which chaotic training keeps small; they are used where given, and the gain is stated.
* The posterior shrinks the gain by a prior that knows how often ideas are kept (:class:`Prior`), which cures the
  winner's curse: the best of many equal arms looks better by 1.2 (5 arms) to 2.5 (100 arms) standard errors.
* A verdict needs the posterior, not the p-value: "algorithm" when the gain is real with probability `sure`, "luck"
  when the minimum worthwhile gain is excluded with that probability, else "undecided" and what would decide.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from scipy.special import nctdtr, ndtr, ndtri, stdtr, stdtrit  # type: ignore[import-untyped]

from argosy.errors import InputError
from argosy.laws.surfaces import Array

BASE_RATE = 0.29
"""Share of tried ideas that are kept: 13 of 45 concluded ones in one public log of experiments."""
SURE = 0.95
EXACT_SIGNS = 14
"""Pairs up to which all sign flips are counted; above, and for unpaired arms, permutations are drawn."""
DRAWS = 20_000
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Prior:
    """Spike and slab: no gain with probability 1 - rate, else normal with sd `effect` (metric units)."""

    rate: float = BASE_RATE
    effect: float = 0.004

    def __post_init__(self) -> None:
        if not (0 < self.rate < 1) or self.effect <= 0:
            raise InputError(f"prior rate {self.rate}, effect {self.effect}", do="rate in (0, 1), effect above 0")


@dataclass(frozen=True)
class Difference:
    """An estimated gain with its standard error and degrees of freedom, and the seeds behind it."""

    gain: float
    standard_error: float
    freedom: float
    seeds: tuple[int, int]
    sd: tuple[float, float]
    correlation: float | None = None

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Confidence interval of the gain."""
        reach = float(stdtrit(self.freedom, 0.5 + level / 2)) * self.standard_error
        return self.gain - reach, self.gain + reach

    def p_value(self, margin: float = 0.0) -> float:
        """Two-sided p for "the gain is 0"; with a margin, one-sided p for "the gain is at most `margin`"."""
        t = (self.gain - margin) / self.standard_error
        return float(2 * stdtr(self.freedom, -abs(t))) if margin == 0 else float(stdtr(self.freedom, -t))


def welch(baseline: Sequence[float], variant: Sequence[float]) -> Difference:
    """Two arms with their own noise; at least two seeds each."""
    a, b = _arm(baseline, "baseline"), _arm(variant, "variant")
    va, vb = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    both = max(va + vb, np.finfo(float).tiny)
    freedom = both**2 / max(va**2 / (len(a) - 1) + vb**2 / (len(b) - 1), np.finfo(float).tiny)
    return Difference(
        float(a.mean() - b.mean()),
        float(np.sqrt(both)),
        float(np.clip(freedom, 1, len(a) + len(b) - 2)),
        (len(a), len(b)),
        (float(a.std(ddof=1)), float(b.std(ddof=1))),
    )


def paired(baseline: Sequence[float], variant: Sequence[float]) -> Difference:
    """Arms whose i-th runs share seed and data order."""
    a, b = _arm(baseline, "baseline"), _arm(variant, "variant")
    if len(a) != len(b):
        raise InputError(f"{len(a)} and {len(b)} runs cannot be paired", do="give equal seeds, or compare unpaired")
    d = a - b
    constant = a.std() == 0 or b.std() == 0
    return Difference(
        float(d.mean()),
        float(max(d.std(ddof=1) / math.sqrt(len(d)), np.finfo(float).tiny)),
        len(d) - 1,
        (len(a), len(b)),
        (float(a.std(ddof=1)), float(b.std(ddof=1))),
        None if constant else float(np.corrcoef(a, b)[0, 1]),
    )


def permutation_p(baseline: Sequence[float], variant: Sequence[float], *, pairs: bool = False, seed: int = 0) -> float:
    """Two-sided p without any assumption on the noise: exact where few arrangements exist, else drawn."""
    a, b = _arm(baseline, "baseline"), _arm(variant, "variant")
    if pairs:
        d = a - b
        if len(d) <= EXACT_SIGNS:
            signs = np.array(list(product([1, -1], repeat=len(d))))
            return float((np.abs(signs @ d) >= abs(d.sum()) * (1 - 1e-12)).mean())
        signs = np.random.default_rng(seed).choice([1, -1], size=(DRAWS, len(d)))
        return float((1 + (np.abs(signs @ d) >= abs(d.sum()) * (1 - 1e-12)).sum()) / (1 + DRAWS))
    values, n = np.concatenate([a, b]), len(a)
    seen = abs(a.mean() - b.mean()) * (1 - 1e-12)
    if math.comb(len(values), n) <= DRAWS:
        first = np.array([values[list(chosen)].mean() for chosen in combinations(range(len(values)), n)])
    else:
        order = np.random.default_rng(seed).permuted(np.tile(values, (DRAWS, 1)), axis=1)
        first = order[:, :n].mean(1)
    rest = (values.sum() - n * first) / len(b)
    hits = (np.abs(first - rest) >= seen).sum()
    exact = math.comb(len(values), n) <= DRAWS
    return float(hits / len(first)) if exact else float((1 + hits) / (1 + DRAWS))


def non_inferior(difference: Difference, margin: float) -> float:
    """One-sided p for "the variant is worse by `margin` or more": a system change must reject it, not find p > 0.05."""
    if margin <= 0:
        raise InputError(f"margin {margin}", do="give the loss that you would tolerate, above 0")
    return float(stdtr(difference.freedom, -(difference.gain + margin) / difference.standard_error))


def power(gain: float, sd: float, seeds: int, alpha: float = 0.05) -> float:
    """Chance that a two-sided t-test with `seeds` per arm finds a true gain; non-central t, exact."""
    freedom = 2 * seeds - 2
    if freedom < 1:
        return 0.0
    shift = abs(gain) / (sd * math.sqrt(2 / seeds))
    edge = float(stdtrit(freedom, 1 - alpha / 2))
    return float(1 - nctdtr(freedom, shift, edge) + nctdtr(freedom, shift, -edge))


def seeds_needed(gain: float, sd: float, chance: float = 0.8, alpha: float = 0.05) -> int | None:
    """Seeds per arm for that power; None when more than `MOST_SEEDS`."""
    if gain == 0 or sd <= 0:
        return None if gain == 0 else 2
    guess = max(2, int(2 * ((ndtri(1 - alpha / 2) + ndtri(chance)) * sd / gain) ** 2) - 3)
    for seeds in range(guess, min(MOST_SEEDS, guess + 20) + 1):
        if power(gain, sd, seeds, alpha) >= chance:
            return seeds
    return None


@dataclass(frozen=True)
class Posterior:
    """What to believe about the gain: probability that it is above 0 and above the minimum, mean and sd."""

    real: float
    worthwhile: float
    mean: float
    sd: float


def posterior(difference: Difference, prior: Prior, minimum: float = 0.0) -> Posterior:
    """Spike-and-slab update; the t likelihood is taken as normal with its variance, so that few seeds stay humble."""
    freedom = max(difference.freedom, 1.0)
    variance = difference.standard_error**2 * (freedom / (freedom - 2) if freedom > 2 else 3.0)
    slab = prior.effect**2 + variance
    ln_odds = (
        math.log(prior.rate / (1 - prior.rate))
        + 0.5 * math.log(variance / slab)
        + 0.5 * difference.gain**2 * (1 / variance - 1 / slab)
    )
    there = 1 / (1 + math.exp(-ln_odds)) if ln_odds > -700 else 0.0
    shrink = prior.effect**2 / slab
    mean, sd = shrink * difference.gain, math.sqrt(shrink * variance)
    total_mean = there * mean
    total_sd = math.sqrt(max(there * (sd**2 + mean**2) - total_mean**2, 0.0))
    return Posterior(there * float(ndtr(mean / sd)), there * float(ndtr((mean - minimum) / sd)), total_mean, total_sd)


@dataclass(frozen=True)
class Verdict:
    """algorithm, luck or undecided, with its probability and what more seeds would cost."""

    verdict: str
    probability: float
    difference: Difference
    posterior: Posterior
    p_permutation: float
    more_seeds: int | None
    more_cost: float | None

    def __str__(self) -> str:
        if self.verdict != "undecided":
            return f"{self.verdict} (probability {self.probability:.1%})"
        if self.more_seeds is None:
            return f"undecided: more than {MOST_SEEDS} more seeds per arm"
        price = "" if self.more_cost is None else f", ${self.more_cost:,.2f}"
        return f"undecided: {self.more_seeds} more seeds per arm{price}"

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        low, high = self.difference.interval()
        return {
            "verdict": self.verdict,
            "text": str(self),
            "probability": self.probability,
            "gain": self.difference.gain,
            "interval_90": [low, high],
            "shrunk_gain": self.posterior.mean,
            "shrunk_sd": self.posterior.sd,
            "probability_real": self.posterior.real,
            "probability_worthwhile": self.posterior.worthwhile,
            "p_t": self.difference.p_value(),
            "p_permutation": self.p_permutation,
            "seeds": list(self.difference.seeds),
            "sd": list(self.difference.sd),
            "correlation": self.difference.correlation,
            "more_seeds": self.more_seeds,
            "more_cost": self.more_cost,
        }


def judge(
    baseline: Sequence[float],
    variant: Sequence[float],
    *,
    pairs: bool = False,
    prior: Prior | None = None,
    minimum: float = 0.0,
    sure: float = SURE,
    price_per_run: float | None = None,
) -> Verdict:
    """Compare two arms; `minimum` is the least gain worth having."""
    difference = paired(baseline, variant) if pairs else welch(baseline, variant)
    belief = posterior(difference, prior or Prior(), minimum)
    p = permutation_p(baseline, variant, pairs=pairs)
    if belief.worthwhile >= sure:
        return Verdict("algorithm", belief.worthwhile, difference, belief, p, 0, 0.0)
    if 1 - belief.worthwhile >= sure:
        return Verdict("luck", 1 - belief.worthwhile, difference, belief, p, 0, 0.0)
    more = _more_seeds(difference, prior or Prior(), minimum, sure)
    cost = None if more is None or price_per_run is None else 2 * more * price_per_run
    return Verdict("undecided", max(belief.worthwhile, 1 - belief.worthwhile), difference, belief, p, more, cost)


def _more_seeds(difference: Difference, prior: Prior, minimum: float, sure: float) -> int | None:
    """Seeds per arm to add until the same gain would give a verdict either way."""
    n = min(difference.seeds)
    for more in [*range(1, 20), *range(20, MOST_SEEDS, 10)]:
        factor = math.sqrt(n / (n + more))
        later = Difference(
            difference.gain,
            difference.standard_error * factor,
            difference.freedom * (n + more) / n,
            (difference.seeds[0] + more, difference.seeds[1] + more),
            difference.sd,
        )
        worthwhile = posterior(later, prior, minimum).worthwhile
        if worthwhile >= sure or 1 - worthwhile >= sure:
            return more
    return None


def false_discoveries(p_values: Sequence[float], rate: float = 0.1) -> list[bool]:
    """Benjamini-Hochberg over a campaign: which findings stand when a share `rate` of them may be false."""
    p = np.asarray(p_values, float)
    if np.any((p < 0) | (p > 1) | np.isnan(p)):
        raise InputError("a p-value is not between 0 and 1", do="give probabilities")
    order = np.argsort(p, kind="stable")
    passed = np.flatnonzero(p[order] <= rate * np.arange(1, len(p) + 1) / len(p))
    stands = np.zeros(len(p), bool)
    if len(passed):
        stands[order[: passed[-1] + 1]] = True
    return stands.tolist()


def luck_of_the_best(arms: int) -> float:
    """Expected maximum of `arms` equal arms in standard errors: how much the winner of a search flatters itself."""
    if arms < 1:
        raise InputError(f"{arms} arms", do="give at least 1")
    z = np.linspace(-9, 9, 20_001)
    below = ndtr(z) ** arms
    return float(z[-1] - below.mean() * (z[-1] - z[0]))


def _arm(values: Sequence[float], name: str) -> Array:
    arm = np.asarray(values, float)
    if not np.isfinite(arm).all():
        raise InputError(f"{name}: a loss is missing or infinite", do="leave diverged runs out and say so")
    if len(arm) < 2:
        raise InputError(f"{name} has {len(arm)} run; its noise is unknown", do="run at least two seeds")
    return arm
