"""The laws give the figures that their papers print."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.laws.kaplan import KAPLAN
from argosy.laws.loss import CHINCHILLA, CHINCHILLA_PRINTED, EPOCH_REPLICATION, LossLaw
from argosy.laws.repetition import MUENNIGHOFF
from argosy.laws.schedule import ScheduleLaw, areas

LAWS = [CHINCHILLA, CHINCHILLA_PRINTED, EPOCH_REPLICATION, MUENNIGHOFF.base]
compute = st.floats(1e18, 1e26)


@pytest.mark.parametrize("law", LAWS)
@given(compute)
def test_the_optimum_is_one(law: LossLaw, flops: float) -> None:
    parameters, tokens = law.optimum(flops)
    assert 6 * parameters * tokens == pytest.approx(flops)
    best = law.loss(parameters, tokens)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert law.loss(parameters * factor, tokens / factor) > best
    assert law.optimal_parameters(tokens) == pytest.approx(parameters)


@pytest.mark.parametrize("law", LAWS)
@given(compute)
def test_reducible_loss_falls_with_the_compute_exponent(law: LossLaw, flops: float) -> None:
    here, there = (law.loss(*law.optimum(c)) - law.E for c in (flops, 10 * flops))
    assert there / here == pytest.approx(10**-law.compute_exponent, rel=1e-6)


def test_chinchilla_figures() -> None:
    # abstract of the replication: consistent with about 20 tokens per parameter at Chinchilla's 5.76e23 FLOP
    parameters, tokens = EPOCH_REPLICATION.optimum(5.76e23)
    assert 17 < tokens / parameters < 23
    # Hoffmann et al., table A3: approach 3 gives 40.0B parameters for Gopher's compute (5.76e23)
    assert CHINCHILLA.optimum(5.76e23)[0] / 1e9 == pytest.approx(40.0, rel=0.02)
    exponents = [law.beta / (law.alpha + law.beta) for law in (CHINCHILLA, EPOCH_REPLICATION)]
    assert exponents == pytest.approx([0.454, 0.513], abs=0.003)
    assert CHINCHILLA_PRINTED.loss(70e9, 1.4e12) == pytest.approx(1.69 + 406.4 / 70e9**0.34 + 410.7 / 1.4e12**0.28)


def test_kaplan_figures() -> None:
    # equations 1.1 and 1.2 are the limits of the joint form
    assert KAPLAN.loss(1e9, 1e30) == pytest.approx((6.4e13 / 1e9) ** 0.076)
    assert KAPLAN.loss(1e30, 1e10) == pytest.approx((1.8e13 / 1e10) ** 0.103)
    assert KAPLAN.critical_batch(1.0) == 2e8


@given(st.floats(1e6, 1e12), st.floats(1.0, 1e3))
def test_repeated_data_is_worth_less_than_new_and_more_than_none(unique: float, epochs: float) -> None:
    worth = MUENNIGHOFF.effective_tokens(unique * epochs, unique)
    assert unique * (1 - 1e-9) <= worth <= unique * min(epochs, 1 + MUENNIGHOFF.data_half_life) * (1 + 1e-9)


def test_repetition_figures() -> None:
    law = MUENNIGHOFF
    for constant, printed in ((law.base.E, 1.869), (law.base.A, 521), (law.base.B, 1488)):
        assert constant == pytest.approx(printed, rel=1e-3)
    assert law.effective_tokens(3.0, 5.0) == 3.0
    assert law.effective_tokens(4.0, 1.0) / 4 > 0.9  # four epochs cost almost nothing
    new_per_epoch = law.effective_tokens(17.0, 1.0) - law.effective_tokens(16.0, 1.0)
    assert 0.3 < new_per_epoch < 0.5  # at sixteen a new one is worth about 1/e
    assert law.loss(1e8, 1e9, 1e12) == law.loss(1e8, 1e9, 1e9)
    assert law.loss(1e8, 4e10, 1e10) > law.loss(1e8, 4e10, 4e10)
    # beyond what the data can feed, parameters saturate
    assert law.effective_parameters(1e15, 1e9) == pytest.approx(law.base.optimal_parameters(1e9) * 6.31)


def test_schedule_areas_by_hand() -> None:
    # exact in binary, so no tolerance
    assert areas([1.0, 1.0, 0.5, 0.0], decay=0.5) == [(1.0, 0.0), (2.0, 0.0), (2.5, 0.5), (2.5, 1.25)]
    assert areas([]) == []


def test_decay_lowers_the_loss_and_warm_up_counts_at_the_peak() -> None:
    law = ScheduleLaw(L0=2.0, A=1.0, alpha=0.5, C=0.3)
    flat = [1e-1] * 100
    assert law.losses(flat)[-1] == pytest.approx(2.0 + (100 * 1e-1) ** -0.5)
    decayed = flat[:80] + [1e-1 * (1 - i / 20) for i in range(20)]
    assert law.losses(decayed)[-1] < law.losses(flat)[-1]
    assert law.losses([0.0, 0.05, *flat[2:]]) == law.losses(flat)


def test_every_constant_has_its_source() -> None:
    for law in (*LAWS, KAPLAN, MUENNIGHOFF):
        assert law.source.year >= 2020
        assert "arXiv" in law.source.where
    assert all(math.isfinite(error) for error in EPOCH_REPLICATION.errors.values())
