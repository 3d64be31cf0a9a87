"""Durations as people write them, and the times of kills."""

import random
import statistics
from itertools import pairwise

import pytest

from argosy.drill.soak import kill_times, seconds
from argosy.errors import UsageError


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), (" 30 m ", 1800)])
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "-3s", "0", "3d", "1e3", "1.2.3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no duration"):
        seconds(text)


def test_no_gap_means_no_kill() -> None:
    assert seconds("0s", least=0) == 0
    assert list(kill_times(100, 0, random.Random(1))) == []


def test_gaps_are_exponential() -> None:
    times = list(kill_times(100_000, 10, random.Random(1)))
    gaps = [b - a for a, b in pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(10, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(10, rel=0.05)
