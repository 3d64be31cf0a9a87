import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.data.permutation import LARGEST, Permutation


@given(n=st.integers(1, 3000), key=st.binary(max_size=20))
@settings(max_examples=60)
def test_every_element_comes_exactly_once(n, key):
    assert np.array_equal(np.sort(Permutation(n, key)(np.arange(n))), np.arange(n))


@given(n=st.integers(1, LARGEST), key=st.binary(max_size=8), data=st.data())
@settings(max_examples=60)
def test_large_lengths_stay_in_range_and_never_collide(n, key, data):
    start = data.draw(st.integers(0, max(0, n - 5000)))
    positions = np.arange(start, min(n, start + 5000))
    elements = Permutation(n, key)(positions)
    assert elements.min() >= 0
    assert elements.max() < n
    assert len(np.unique(elements)) == len(positions)


def test_any_position_alone_gives_the_same_as_in_a_batch():
    permutation = Permutation(1_000_003, b"key")
    batch = permutation(np.arange(999_000, 999_040).reshape(4, 10))
    assert batch.shape == (4, 10)
    assert [int(permutation(i)) for i in range(999_000, 999_040)] == batch.reshape(-1).tolist()


def test_the_order_is_part_of_every_run_and_never_changes():
    assert Permutation(1000, b"argosy")(np.arange(8)).tolist() == GOLDEN


def test_key_and_length_both_matter():
    places = np.arange(500)
    orders = [Permutation(n, key)(places) for n, key in ((500, b"a"), (500, b"b"), (501, b"a"))]
    agreements = [np.mean(orders[0] == other) for other in orders[1:]]
    assert max(agreements) < 0.05


def test_small_lengths_show_no_structure():
    """Over many keys each element is equally likely at each place, and neighbours know nothing of each other."""
    n, keys = 7, 7000
    orders = np.stack([Permutation(n, str(key).encode())(np.arange(n)) for key in range(keys)])
    counts = np.stack([np.bincount(column, minlength=n) for column in orders.T])
    chi_square = ((counts - keys / n) ** 2 / (keys / n)).sum()
    assert chi_square < 36 + 5 * np.sqrt(2 * 36)  # (n - 1)^2 degrees of freedom, five standard deviations
    pairs = np.zeros((n, n))
    np.add.at(pairs, (orders[:, :-1].ravel(), orders[:, 1:].ravel()), 1)
    expected = keys * (n - 1) / (n * (n - 1))
    off_diagonal = pairs[~np.eye(n, dtype=bool)]
    assert np.abs(off_diagonal / expected - 1).max() < 0.17  # five standard deviations
    assert np.trace(pairs) == 0


@pytest.mark.parametrize("n", [1000, 1024, 65_537])
def test_serial_correlation_and_local_order_vanish(n):
    order = Permutation(n, b"serial")(np.arange(n)).astype(float)
    for lag in (1, 2, 3, 16, 32, 64):
        assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < 5 / np.sqrt(n)
    assert abs(np.corrcoef(np.arange(n), order)[0, 1]) < 5 / np.sqrt(n)
    rises = np.mean(np.diff(order) > 0)
    assert abs(rises - 0.5) < 5 * np.sqrt(1 / 12 / n)
    low_bits = order.astype(int) & 1
    assert abs(np.mean(low_bits[:-1] == low_bits[1:]) - 0.5) < 5 * 0.5 / np.sqrt(n)


@pytest.mark.parametrize("n", [0, -3, LARGEST + 1])
def test_impossible_lengths_are_refused(n):
    with pytest.raises(ValueError, match="2\\^40"):
        Permutation(n, b"")


@pytest.mark.parametrize("position", [-1, 10])
def test_positions_outside_are_refused(position):
    with pytest.raises(ValueError, match="outside"):
        Permutation(10, b"")(position)


GOLDEN = [683, 544, 759, 814, 685, 774, 322, 203]
