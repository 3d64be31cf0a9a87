import threading
import time

import pytest

from argosy.data.position import Position
from argosy.data.prefetch import Prefetch


class Reading:
    """Stands for a loader: a batch is its window."""

    def __init__(self):
        self.windows = []
        self.threads = set()

    def __call__(self, window):
        self.windows.append(window)
        self.threads.add(threading.get_ident())
        if window[0][0] == 42:
            raise OSError("bad disk")
        return [window]


@pytest.mark.parametrize("depth", [0, 1, 2, 7])
def test_any_depth_gives_the_same_batches(depth):
    position, found = Position().skip(6, 4), []
    with Prefetch(Reading(), 4, depth) as prefetch:
        for _ in range(6):
            batches, position = prefetch.get(position)
            found += batches
    assert found == [((0, 4),), ((4, 2), (10, 2)), ((12, 4),), ((16, 4),), ((20, 4),), ((24, 4),)]


def test_it_reads_ahead_in_the_background_and_no_further():
    reading = Reading()
    with Prefetch(reading, 4, 3) as prefetch:
        prefetch.get(Position())
        deadline = time.monotonic() + 20
        while len(reading.windows) < 4 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.05)
        assert [window[0][0] for window in reading.windows] == [0, 4, 8, 12]
    assert threading.get_ident() not in reading.threads


def test_a_jump_drops_what_was_read_ahead():
    with Prefetch(Reading(), 4, 3) as prefetch:
        _, position = prefetch.get(Position())
        batches, _ = prefetch.get(Position(100))
        assert batches == [((100, 4),)]
        batches, _ = prefetch.get(position)
        assert batches == [((4, 4),)]


@pytest.mark.parametrize("depth", [0, 2])
def test_what_reading_raises_comes_when_its_turn_comes(depth):
    with Prefetch(Reading(), 2, depth) as prefetch:
        _, position = prefetch.get(Position(38))
        _, position = prefetch.get(position)
        with pytest.raises(OSError, match="bad disk"):
            prefetch.get(position)
