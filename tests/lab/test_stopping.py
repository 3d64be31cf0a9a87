"""Early-stop rules are replayed before they are trusted."""

import numpy as np
import pytest

from argosy.errors import InputError
from argosy.lab.stopping import Asha, Margin, Recorded, SuccessiveHalving, recorded, replay

GRID = np.linspace(0.1, 1.0, 19)


def campaign(*, crossing: bool, arms: int = 16, seeds: int = 3) -> list[Recorded]:
    """Arms of known quality; with `crossing`, what leads in mid-schedule ends last."""
    rng = np.random.default_rng(0)
    runs = []
    for arm in range(arms):
        for _ in range(seeds):
            end = 3.2 + 0.01 * arm
            early = -0.03 * arm if crossing else 0.004 * arm
            loss = end + 1.5 * (1 - GRID) ** 2 + early * np.sin(np.pi * GRID) + 0.001 * rng.standard_normal(19)
            runs.append(Recorded(f"arm{arm}", GRID, loss))
    return runs


@pytest.mark.parametrize(
    "rule", [SuccessiveHalving(2, (0.2, 0.4)), SuccessiveHalving(4, (0.25,)), Asha(2, (0.15, 0.3), 2)]
)
def test_rules_are_trusted_where_ranks_hold(rule) -> None:
    said = replay(rule, campaign(crossing=False), arms=8, campaigns=200)
    assert said.trusted, said.reason
    assert said.kept_best >= 0.9
    assert said.cost_share <= 0.5
    assert all(rank > 0.8 for rank in said.rank_correlation)


@pytest.mark.parametrize("rule", [SuccessiveHalving(2, (0.25, 0.5)), Asha(2, (0.25, 0.5)), Margin(0.02, (0.5,))])
def test_a_rule_that_would_drop_the_winner_is_refused(rule) -> None:
    said = replay(rule, campaign(crossing=True), arms=8, campaigns=200)
    assert not said.trusted
    assert "dropped the winner" in said.reason


def test_a_rule_that_never_fires_is_refused_loudly() -> None:
    said = replay(Margin(10.0, (0.5,)), campaign(crossing=False), arms=8, campaigns=50)
    assert said.kept_best == 1.0
    assert said.cost_share == 1.0
    assert "saves too little" in said.reason


def test_halving_by_hand() -> None:
    losses = np.array([[3.0, 2.0], [1.0, 3.0], [2.0, 1.0], [4.0, 0.0]])
    trained, kept = SuccessiveHalving(2, (0.25, 0.5)).play(losses)
    assert trained.tolist() == [0.25, 0.5, 1.0, 0.25]
    assert kept.tolist() == [False, False, True, False]


def test_asha_pauses_and_promotes_but_trains_nothing_twice() -> None:
    losses = np.array([[5.0], [4.0], [3.0], [2.0], [1.0], [6.0]])
    trained, kept = Asha(3, (0.5,), workers=1).play(losses)
    # one of three is promoted as soon as three have come; later each new leader is, without recalling the old one
    assert trained.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0, 0.5]
    assert kept.tolist() == [False, False, True, True, True, False]


def test_only_matched_fractions_are_compared() -> None:
    short, long = np.arange(100, 1001, 100), np.arange(100, 2001, 100)
    runs = recorded({"a": ("x", short, 4 - short / 1000, 1000), "b": ("y", long, 4 - long / 2000, 2000)})
    assert runs[0].at(0.5) == pytest.approx(3.5)
    assert runs[1].at(0.5) == pytest.approx(3.5)  # step 1000, not step 500
    assert runs[0].at(0.02) is None
    unfinished = recorded({"c": ("x", [100, 500], [4.0, 3.5], 1000)})
    assert unfinished == []


def test_rungs_without_evaluations_are_an_error() -> None:
    coarse = [Recorded(f"arm{i}", np.array([0.9, 1.0]), np.array([3.0, 2.9])) for i in range(9)]
    with pytest.raises(InputError, match="0 arms have evaluations at 25%"):
        replay(SuccessiveHalving(), coarse)
