"""Laws of paired gaps and of learning-rate schedules, planted and recovered."""

import numpy as np
import pytest

from argosy.errors import InputError
from argosy.lab.gap import Gaps, forecast_gap, match
from argosy.lab.runs import Runs
from argosy.lab.schedules import Curve, fit_law, fit_schedules
from argosy.laws.annealing import MultiPower, Schedule, Tissue
from argosy.laws.schedule import areas


def cells(noise: float, seed: int = 0) -> Gaps:
    rng = np.random.default_rng(seed)
    n = np.repeat([1.3e8, 3e8, 5.4e8], 4)
    d = n * np.tile([20.0, 40.0, 80.0, 160.0], 3)
    gap = 0.02 * (n / 5.4e8) ** -0.2 * (d / 1e10) ** -0.4 + noise * rng.standard_normal(12)
    return Gaps(n, d, gap)


def test_a_planted_gap_is_forecast_within_its_interval() -> None:
    truth = 0.02 * (1.2e9 / 5.4e8) ** -0.2 * (2.4e10 / 1e10) ** -0.4
    held = 0
    for seed in range(20):
        said = forecast_gap(cells(0.0007, seed), np.array([1.2e9]), np.array([2.4e10]))[0]
        low, high = said.interval(0.9)
        held += low < truth < high
        assert said.gap == pytest.approx(truth, rel=0.3)
    assert held >= 17


def test_a_gap_of_noise_is_not_forecast_as_a_gain() -> None:
    gaps = cells(0.0)
    rng = np.random.default_rng(3)
    said = forecast_gap(
        Gaps(gaps.parameters, gaps.tokens, 0.001 * rng.standard_normal(12)), np.array([1.2e9]), np.array([2e10])
    )
    low, high = said[0].interval(0.9)
    assert low < 0 < high


def test_matching_needs_cells_of_both_arms() -> None:
    n, d = np.array([1e8, 2e8, 3e8, 1e8]), np.array([2e9, 4e9, 6e9, 2e9])
    a, b = (
        Runs(n, d, 6 * n * d, np.array([3.0, 2.9, 2.8, 3.2])),
        Runs(n, d, 6 * n * d, np.array([2.9, 2.85, 2.79, 2.9])),
    )
    gaps = match(a, b)
    np.testing.assert_allclose(gaps.gap, [0.2, 0.05, 0.01])  # two seeds of the first cell are averaged
    with pytest.raises(InputError, match="1 cells"):
        match(a.take(np.array([0])), b)


def schedules() -> dict[str, Schedule]:
    steps = np.arange(400.0, 8001.0, 80.0)
    share = (steps - 400) / 7600
    two = np.where(steps < 4000, 1.0, 0.3)
    wsd = np.where(share < 0.8, 1.0, np.maximum(1 - (share - 0.8) / 0.2 * 0.9, 0.1))
    return {
        "constant": Schedule(steps, np.full(len(steps), 3e-4)),
        "cosine": Schedule(steps, 3e-4 * (0.55 + 0.45 * np.cos(np.pi * share))),
        "two-step": Schedule(steps, 3e-4 * two),
        "wsd": Schedule(steps, 3e-4 * wsd),
    }


@pytest.mark.parametrize(
    ("law", "shape", "coefficients"),
    [
        (Tissue(), np.log([0.5, 500.0]), np.array([2.7, 0.55, 0.8])),
        (MultiPower(), np.array([np.log(0.5), np.log(20.0), np.log(0.4), 0.5]), np.array([2.7, 0.55, 700.0])),
    ],
    ids=["tissue", "multi_power"],
)
def test_an_unseen_schedule_is_forecast_from_three_others(law, shape, coefficients) -> None:
    rng = np.random.default_rng(0)
    truth = {name: law.basis(shape, schedule) @ coefficients for name, schedule in schedules().items()}
    curves = {
        name: Curve(schedules()[name], truth[name] * (1 + 3e-4 * rng.standard_normal(len(truth[name]))))
        for name in ("constant", "cosine", "two-step")
    }
    model = fit_schedules(curves)
    said = model.losses(schedules()["wsd"])
    assert np.abs(said / truth["wsd"] - 1).mean() < 0.002
    low, high = model.interval(schedules()["wsd"], 0.9)
    assert ((low < truth["wsd"]) & (truth["wsd"] < high)).mean() > 0.85


def test_tissue_agrees_with_the_law_per_step() -> None:
    steps = np.arange(1.0, 401.0)
    rates = np.where(steps < 200, 3e-4, 1e-4)
    length = 50.0
    paid = -Tissue().basis(np.log([0.5, length]), Schedule(steps, rates))[:, 2]
    annealed = [second for _, second in areas(list(rates), decay=float(np.exp(-1 / length)))]
    # the sum over momentum of the plain law is the continuous 1 - exp(-t/length) up to half a step
    np.testing.assert_allclose(paid[-1], annealed[-1], rtol=0.02)


def test_one_curve_is_too_few() -> None:
    schedule = schedules()["cosine"]
    with pytest.raises(InputError, match="one curve"):
        fit_schedules({"cosine": Curve(schedule, np.linspace(4, 3, len(schedule.steps)))})


def test_a_fit_without_any_decay_still_answers() -> None:
    schedule = schedules()["constant"]
    loss = 2.5 + 0.6 * schedule.area**-0.5
    found = fit_law(Tissue(), [Curve(schedule, loss)])
    np.testing.assert_allclose(found.losses(schedule), loss, rtol=1e-4)
