import numpy as np
import pytest

from argosy.data.samples import SampleOrder


def test_every_epoch_visits_each_sample_once_in_its_own_order():
    epochs, ids = SampleOrder(seed=3, samples=101)(np.arange(4 * 101))
    assert np.array_equal(epochs, np.repeat(np.arange(4), 101))
    orders = ids.reshape(4, 101)
    assert all(np.array_equal(np.sort(order), np.arange(101)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_seek_gives_what_reading_from_the_start_gives():
    order = SampleOrder(seed=3, samples=37)
    _, ids = order(np.arange(1000))
    for index in (0, 36, 37, 38, 999):
        epoch, sample = order(index)
        assert int(epoch) == index // 37
        assert int(sample) == ids[index]


def test_far_away_is_as_near_as_the_beginning():
    epoch, sample = SampleOrder(seed=0, samples=1_000_003)(10**15)
    assert int(epoch) == 10**15 // 1_000_003
    assert 0 <= int(sample) < 1_000_003


def test_seed_matters():
    first, second = (SampleOrder(seed, 1000)(np.arange(1000))[1] for seed in (0, 1))
    assert np.mean(first == second) < 0.02


def test_nothing_to_order_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        SampleOrder(0, 0)
