"""Spikes are seen; noise, a falling loss and level shifts are not."""

import math
import random

import pytest

from argosy.resilience.spikes import SUSTAINED, LossSpike, SpikeDetector


def feed(losses: list[float]) -> LossSpike | None:
    detector = SpikeDetector()
    for step, loss in enumerate(losses):
        try:
            detector.look(step, loss)
        except LossSpike as spike:
            return spike
    return None


def falling(steps: int, seed: int, noise: float = 0.05) -> list[float]:
    chance = random.Random(seed)
    return [2.0 + 6.0 / (1 + step / 30) + chance.gauss(0, noise) for step in range(steps)]


@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_ordinary_steps_are_quiet(seed: int) -> None:
    assert feed(falling(1000, seed)) is None


def test_a_sustained_spike_is_dated_to_its_first_step() -> None:
    losses = falling(300, 1)
    losses[200:] = [loss + 3 for loss in losses[200:]]
    spike = feed(losses)
    assert spike is not None
    assert (spike.good_until, spike.bad_until) == (200, 200 + SUSTAINED - 1)


def test_a_spike_on_a_steeply_falling_loss_is_seen() -> None:
    """As in the first steps of a run, where the losses of the window spread far."""
    chance = random.Random(7)
    losses = [5.5 - 2.5 * step / 58 + chance.gauss(0, 0.15) for step in range(58)]
    spike = feed([*losses, 7.6, 7.7, 7.4])
    assert spike is not None
    assert spike.good_until == 58


def test_single_outliers_are_no_spike() -> None:
    losses = falling(300, 2)
    for step in range(60, 300, 7):
        losses[step] += 5
    assert feed(losses) is None


@pytest.mark.parametrize("shift", [-1.0, 0.1, 0.3, 0.4])
def test_a_level_shift_is_no_spike(shift: float) -> None:
    losses = falling(600, 3)
    losses[300:] = [loss + shift for loss in losses[300:]]
    assert feed(losses) is None


def test_losses_that_are_not_finite_are_left_to_the_update_guard() -> None:
    losses = falling(300, 4)
    losses[100:110] = [math.nan] * 10
    assert feed(losses) is None
