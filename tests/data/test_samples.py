import numpy as np
import pytest

from argosy.data.mixture import Mixture, Stage
from argosy.data.samples import BLOCK, SampleOrder


def test_every_epoch_visits_each_sample_once_in_its_own_order():
    drawn = SampleOrder(3, [101]).draw(0, 4 * 101)
    assert np.array_equal(drawn.epoch, np.repeat(np.arange(4), 101))
    orders = drawn.sample.reshape(4, 101)
    assert all(np.array_equal(np.sort(order), np.arange(101)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_the_order_is_the_one_that_earlier_versions_had():
    """Runs of them go on: these numbers were drawn by the first version."""
    assert SampleOrder(3, [37]).draw(0, 8).sample.tolist() == [22, 30, 27, 1, 17, 15, 25, 28]


def test_seek_gives_what_reading_from_the_start_gives():
    order = SampleOrder(3, [37])
    whole = order.draw(0, 5 * BLOCK)
    for first, count in ((0, 1), (36, 2), (999, 1), (BLOCK - 1, 2), (BLOCK, BLOCK), (5, 2 * BLOCK)):
        fresh = SampleOrder(3, [37]).draw(first, count)
        for name in ("source", "epoch", "sample"):
            assert np.array_equal(getattr(fresh, name), getattr(whole, name)[first : first + count])


def test_a_mixture_visits_each_sample_of_each_source_once_an_epoch():
    samples = [7, 100, 33]
    order = SampleOrder(1, samples, ["a", "b", "c"], Mixture([Stage(0, (0.2, 0.5, 0.3))], [None] * 3))
    drawn = order.draw(0, 1000)
    for source, count in enumerate(samples):
        of_source = drawn.source == source
        epochs, ids = drawn.epoch[of_source], drawn.sample[of_source]
        assert np.array_equal(epochs, np.arange(len(epochs)) // count)
        whole = len(ids) // count * count
        orders = ids[:whole].reshape(-1, count)
        assert all(np.array_equal(np.sort(one), np.arange(count)) for one in orders)
        assert len({tuple(one) for one in orders}) == len(orders)


def test_a_source_keeps_its_order_when_another_joins():
    alone = SampleOrder(1, [50], ["b"]).draw(0, 50).sample
    order = SampleOrder(1, [9, 50], ["a", "b"], Mixture([Stage(0, (1.0, 1.0))], [None, None]))
    drawn = order.draw(0, 100)
    assert np.array_equal(drawn.sample[drawn.source == 1], alone)


def test_far_away_is_as_near_as_the_beginning():
    drawn = SampleOrder(0, [1_000_003]).draw(10**15, 1)
    assert int(drawn.epoch[0]) == 10**15 // 1_000_003
    assert 0 <= int(drawn.sample[0]) < 1_000_003


def test_seed_matters():
    first, second = (SampleOrder(seed, [1000]).draw(0, 1000).sample for seed in (0, 1))
    assert np.mean(first == second) < 0.02


def test_nothing_to_order_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        SampleOrder(0, [0])
    with pytest.raises(IndexError):
        SampleOrder(0, [5], ["a"], Mixture([Stage(0, (1.0,))], [5])).draw(0, 6)
