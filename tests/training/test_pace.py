"""What a save is said to cost: all of it where ranks wait, else the wait and what it slowed the steps down by."""

import pytest

from argosy.training.steering import SLOW_DISK_BYTES_PER_S, Pace


def test_before_the_first_save_it_costs_what_a_slow_disk_takes() -> None:
    assert Pace(2 * int(SLOW_DISK_BYTES_PER_S)).save_cost_s == 2.0


def test_a_save_that_is_waited_for_costs_all_of_it() -> None:
    pace = Pace(0)
    pace.save_s = 3.0
    assert pace.save_cost_s == 3.0


def test_a_save_beside_training_costs_the_wait_and_the_slower_steps() -> None:
    pace = Pace(0)
    for duration_s in (1.0, 1.1, 0.9, 9.0):  # one slow step is no reason to think that all are
        pace.step(duration_s)
    for duration_s in (1.3, 1.25):
        pace.step(duration_s, saving=True)
    pace.saved(blocked_s=0.02, duration_s=2.7)
    assert pace.save_cost_s == pytest.approx(0.02 + 2.55 - 2 * 1.05)
    assert pace.save_s == 2.7
    pace.step(1.0, saving=True)
    pace.saved(blocked_s=0.02, duration_s=1.1)
    assert pace.save_cost_s == pytest.approx(0.02), "it was not slower; the last save's steps are forgotten"
