import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.data.mixture import Stage
from argosy.data.position import Position

STRETCHES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=6)


def indices(window):
    return [index for first, count in window for index in range(first, first + count)]


@given(STRETCHES, st.lists(st.integers(1, 12), min_size=1, max_size=20))
def test_everything_but_the_skipped_is_taken_once_whatever_the_batch(stretches, batches):
    position = Position()
    for stretch in stretches:
        position = position.skip(*stretch)
    taken = []
    for count in batches:
        window, position = position.take(count)
        assert sum(size for _, size in window) == count
        taken += indices(window)
    left_out = {index for first, count in stretches for index in range(first, first + count)}
    wanted = [index for index in range(taken[-1] + 1) if index not in left_out]
    assert taken == wanted
    assert Position.from_dict(position.to_dict()) == position


def test_stretches_that_touch_become_one():
    position = Position().skip(10, 5).skip(15, 5).skip(12, 2).skip(40, 1)
    assert position.skipped == ((10, 10), (40, 1))


def test_what_was_drawn_stays_drawn_under_other_weights():
    old = (Stage(0, (0.5, 0.5)), Stage(100, (0.9, 0.1)), Stage(900, (0.0, 1.0)))
    new = [Stage(0, (0.2, 0.8)), Stage(500, (0.3, 0.7))]
    at = Position(200, weights=old)
    assert at.schedule(list(old)) == list(old), "the same recipe goes on as it would have"
    assert at.schedule(new) == [*old[:2], Stage(200, (0.2, 0.8)), Stage(500, (0.3, 0.7))]
    assert Position().schedule(new) == new


@pytest.mark.parametrize("count", [1, 7])
def test_a_window_is_one_stretch_where_nothing_is_skipped(count):
    window, after = Position(5).take(count)
    assert window == ((5, count),)
    assert after == Position(5 + count)
