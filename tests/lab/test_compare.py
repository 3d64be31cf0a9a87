"""Comparisons of two arms, against hand-made and resampled truths."""

import numpy as np
import pytest

from argosy.errors import InputError
from argosy.lab.compare import (
    Prior,
    false_discoveries,
    judge,
    luck_of_the_best,
    non_inferior,
    paired,
    permutation_p,
    posterior,
    power,
    seeds_needed,
    welch,
)
from argosy.lab.sequential import e_value, watch


def test_welch_and_paired_against_worked_values() -> None:
    a, b = [3.281, 3.279, 3.283, 3.280], [3.276, 3.279, 3.277, 3.275, 3.278]
    said = welch(a, b)  # by hand: variances 2.917e-6/4 and 2.5e-6/5
    assert said.gain == pytest.approx(0.00375)
    assert said.standard_error == pytest.approx(np.sqrt(2.9166667e-6 / 4 + 2.5e-6 / 5), rel=1e-6)
    assert said.freedom == pytest.approx(6.3, abs=0.4)
    assert said.p_value() == pytest.approx(0.0128, abs=0.002)
    both = paired(a, b[:4])
    assert both.freedom == 3
    assert both.gain == pytest.approx(0.004)


@pytest.mark.parametrize("noisy", [1.0, 3.0])
def test_false_positives_of_equal_arms_are_five_per_cent(noisy: float) -> None:
    rng = np.random.default_rng(0)
    p = [welch(rng.normal(3.28, 0.0012, 6), rng.normal(3.28, 0.0012 * noisy, 9)).p_value() for _ in range(12_000)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.01)


def test_permutations_agree_with_the_count_of_arrangements() -> None:
    assert permutation_p([1.0, 2.0], [3.0, 4.0]) == pytest.approx(2 / 6)
    assert permutation_p([4.0, 5.0, 6.0], [1.0, 1.5, 2.0], pairs=True) == pytest.approx(2 / 8)


def test_power_table_of_the_speed_run() -> None:
    # n = 2 (2.80 sd/delta)²: 5 at 0.002 and 19 at 0.001 with sd 0.0011; the exact t-test needs one or two more
    assert seeds_needed(0.002, 0.0011) in (6, 7)
    assert seeds_needed(0.001, 0.0011) in (20, 21)
    n = seeds_needed(0.001, 0.0011)
    assert power(0.001, 0.0011, n) >= 0.8 > power(0.001, 0.0011, n - 1)
    rng = np.random.default_rng(1)
    found = [welch(rng.normal(0.002, 0.0011, 6), rng.normal(0, 0.0011, 6)).p_value() < 0.05 for _ in range(1500)]
    assert np.mean(found) == pytest.approx(power(0.002, 0.0011, 6), abs=0.04)


def test_verdicts() -> None:
    rng = np.random.default_rng(5)
    base = rng.normal(3.280, 0.0012, 10)
    assert judge(base, base - 0.005 + rng.normal(0, 0.0003, 10)).verdict == "algorithm"
    worse = judge(base, base + 0.004 + rng.normal(0, 0.0003, 10))
    assert worse.verdict == "luck"
    unsure = judge(base[:3], base[:3] - 0.001 + rng.normal(0, 0.001, 3), price_per_run=10.0)
    assert unsure.verdict == "undecided"
    assert unsure.more_seeds > 0
    assert unsure.more_cost == pytest.approx(20.0 * unsure.more_seeds)
    assert "more seeds" in str(unsure)


def test_the_posterior_shrinks_a_lucky_winner() -> None:
    rng = np.random.default_rng(2)
    prior, raw, shrunk = Prior(0.29, 0.004), [], []
    for _ in range(400):
        real = rng.random(20) < prior.rate
        truth = np.where(real, rng.normal(0, prior.effect, 20), 0.0)
        found = [welch(rng.normal(0, 0.0012, 4), rng.normal(-gain, 0.0012, 4)) for gain in truth]
        best = int(np.argmax([one.gain for one in found]))
        raw.append(found[best].gain - truth[best])
        shrunk.append(posterior(found[best], prior).mean - truth[best])
    assert np.mean(raw) > 1e-4  # the winner flatters itself
    assert abs(np.mean(shrunk)) < 0.5 * np.mean(raw)


def test_luck_of_the_best_has_the_known_values() -> None:
    assert [round(luck_of_the_best(k), 2) for k in (1, 5, 10, 20, 50, 100)] == [0.0, 1.16, 1.54, 1.87, 2.25, 2.51]


def test_non_inferiority_is_not_the_absence_of_significance() -> None:
    same = welch([3.28, 3.2801, 3.2799], [3.2801, 3.28, 3.2802])
    noisy = welch([3.28, 3.30, 3.26], [3.27, 3.29, 3.285])
    assert non_inferior(same, 0.002) < 0.01
    assert noisy.p_value() > 0.05
    assert non_inferior(noisy, 0.002) > 0.05
    with pytest.raises(InputError, match="margin"):
        non_inferior(same, 0.0)


def test_false_discoveries_step_up() -> None:
    # sorted: .01 .03 .04 .06 .9 against .02 .04 .06 .08 .10: the first four pass
    assert false_discoveries([0.01, 0.04, 0.03, 0.9, 0.06], 0.1) == [True, True, True, False, True]
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(300):
        p = np.concatenate([rng.random(16), rng.random(4) * 1e-3])
        found = np.array(false_discoveries(p, 0.1))
        shares.append(found[:16].sum() / max(found.sum(), 1))
    assert np.mean(shares) <= 0.1


def test_peeking_costs_nothing() -> None:
    rng = np.random.default_rng(0)
    alarms = [watch(rng.normal(0, 1, 60)).stopped_at is not None for _ in range(800)]
    assert np.mean(alarms) <= 0.05 + 0.015
    found = [watch(rng.normal(1.0, 1, 60)).stopped_at is not None for _ in range(100)]
    assert np.mean(found) > 0.95


def test_evidence_is_a_fair_bet() -> None:
    rng = np.random.default_rng(4)
    assert np.mean([e_value(rng.normal(0, 7, 8)) for _ in range(20_000)]) == pytest.approx(1.0, abs=0.25)


def test_bad_arms() -> None:
    with pytest.raises(InputError, match="at least two"):
        welch([1.0], [1.0, 2.0])
    with pytest.raises(InputError, match="missing or infinite"):
        welch([1.0, np.nan], [1.0, 2.0])
    with pytest.raises(InputError, match="cannot be paired"):
        paired([1.0, 2.0, 3.0], [1.0, 2.0])
