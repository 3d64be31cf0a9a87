"""Value of information, and nats into dollars."""

import math

import numpy as np
import pytest
from ladders import planted

from argosy.errors import InputError, UsageError
from argosy.lab.dollars import Front, Range, cheapest_for, front, marginals, sensitivity
from argosy.lab.forecast import forecaster
from argosy.lab.runs import Runs
from argosy.lab.value import Experiment, best_seeds, evpi, evsi, rank
from argosy.laws.loss import EPOCH_REPLICATION


def idea(name: str = "idea", **changes) -> Experiment:
    fields = {"gain": -0.002, "gain_sd": 0.004, "noise_sd": 0.0013, "seeds": 2, "cost": 10.0, "dollars_per_nat": 1e5}
    return Experiment(name, **(fields | changes))


def test_worked_values_of_information() -> None:
    said = [evsi(-0.002, 0.004, 0.0013, n) for n in (1, 4)]
    assert said == pytest.approx([0.00066, 0.00076], abs=2e-5)
    assert evpi(-0.002, 0.004) == pytest.approx(0.00079, abs=1e-5)
    assert evsi(0.1, 0.0, 0.001, 3) == 0.0


def test_value_of_information_against_simulation() -> None:
    rng = np.random.default_rng(0)
    m, t, s, n = 0.001, 0.003, 0.002, 3
    theta = rng.normal(m, t, 400_000)
    seen = theta + rng.normal(0, s * math.sqrt(2 / n), len(theta))
    w = t**2 / (t**2 + 2 * s**2 / n)
    simulated = np.maximum(m + w * (seen - m), 0).mean() - max(m, 0)
    assert evsi(m, t, s, n) == pytest.approx(simulated, rel=0.02)


def test_first_seeds_hold_most_of_the_value() -> None:
    values = [evsi(-0.002, 0.004, 0.0013, n) for n in range(1, 11)]
    assert np.all(np.diff(values) > 0)
    assert values[1] / evpi(-0.002, 0.004) > 0.85
    assert best_seeds(idea(), cost_per_seed=1.0) in (1, 2, 3)


def test_ranking_puts_needs_first_and_respects_the_budget() -> None:
    ladder = idea("rung", gain=-0.02, gain_sd=0.002, cost=5)  # worth little itself, but it unlocks the other
    big = idea("big", gain_sd=0.03, cost=20, needs=("rung",))
    poor = idea("poor", gain=-0.02, gain_sd=0.001, cost=50)
    names = [one.experiment.name for one in rank([poor, big, ladder])]
    assert names == ["rung", "big", "poor"]
    assert [one.experiment.name for one in rank([poor, big, ladder], budget=25)] == ["rung", "big"]
    assert rank([poor, big, ladder], budget=4) == []
    assert not rank([poor])[0].worth_it


def test_impossible_lists_are_refused() -> None:
    with pytest.raises(UsageError, match="wait for each other"):
        rank([idea("a", needs=("b",)), idea("b", needs=("a",))])
    with pytest.raises(UsageError, match="not in the list"):
        rank([idea("a", needs=("ghost",))])


def test_compute_equivalent_gain_of_the_published_front() -> None:
    law = EPOCH_REPLICATION
    sharp = Front(np.full(100, law.E), np.full(100, law.compute_exponent))
    # 0.01 nats at loss 2.2 are worth about 16 % of the compute
    assert sharp.multiplier(0.01, 2.2).value == pytest.approx(1.16, abs=0.01)
    assert sharp.dollars(0.01, 2.2, 1000.0).value == pytest.approx(160, abs=10)
    assert sharp.multiplier(1.0, 2.2).value == math.inf  # below the floor no compute buys it


def test_uncertainty_of_the_floor_reaches_the_dollars() -> None:
    draws = front(forecaster(planted(noise=0.002)))
    said = draws.dollars(0.01, 2.3, 1000.0)
    assert said.low < said.value < said.high
    assert (
        said.low
        < 1000 * ((1 - 0.01 / (2.3 - EPOCH_REPLICATION.E)) ** (-1 / EPOCH_REPLICATION.compute_exponent) - 1)
        < said.high
    )


def test_marginal_values_have_the_slopes_of_the_law() -> None:
    law = EPOCH_REPLICATION
    at = Runs.targets(np.array([1e9]), np.array([2e10]), np.array([1.2e20]))
    found = {one.resource: one for one in marginals(forecaster(planted(noise=0.0002)), at, 1e-18)}
    assert found["parameters"].nats_per_percent == pytest.approx(law.alpha * law.A / 1e9**law.alpha / 100, rel=0.05)
    assert found["tokens"].nats_per_percent == pytest.approx(law.beta * law.B / 2e10**law.beta / 100, rel=0.05)
    assert found["tokens"].cost_per_percent == pytest.approx(1.2)


def test_serving_makes_smaller_models_trained_longer_right() -> None:
    model = forecaster(planted(noise=0.0002))
    alone, served = cheapest_for(model, 2.5, 0.0), cheapest_for(model, 2.5, 1e12)
    n, _ = EPOCH_REPLICATION.optimum(alone.train_flops)
    assert alone.parameters == pytest.approx(n, rel=0.3)
    assert served.parameters < 0.8 * alone.parameters
    assert served.total_flops < alone.train_flops + 2 * alone.parameters * 1e12
    with pytest.raises(InputError, match="not reached"):
        cheapest_for(model, 1.2, 0.0)


def test_break_even_scale() -> None:
    rows, even = sensitivity(Range(200.0, 100.0, 400.0), cost=500.0)
    assert even == 2.5
    assert [(row.price, row.scale, row.net.value) for row in rows][:2] == [(0.5, 1.0, -150.0), (0.5, 10.0, 750.0)]
