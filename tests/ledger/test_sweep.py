"""The sweep against a picture painted moment by moment."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.ledger.sweep import NOBODY, sweep

WIDTH = 40
INTERVALS = st.lists(
    st.tuples(st.integers(0, WIDTH), st.integers(0, WIDTH), st.integers(0, 5)).map(
        lambda row: (min(row[:2]), max(row[:2]), row[2])
    ),
    min_size=1,
    max_size=60,  # chains longer than the peeling takes
)


def winner(moment: int, rows: list[tuple[int, int, int]], floor: int = 99) -> int:
    """Upper level, later start, shorter, later number."""
    here = [(level, t0, -t1, i) for i, (t0, t1, level) in enumerate(rows) if t0 <= moment < t1 and level <= floor]
    return max(here)[-1] if here else NOBODY


@given(INTERVALS, st.lists(st.integers(0, WIDTH), max_size=3))
@settings(max_examples=150)
def test_every_moment_has_the_owner_that_the_rule_names(rows: list[tuple[int, int, int]], cuts: list[int]) -> None:
    t0, t1, level = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    line = sweep(t0, t1, level, floor=2, cuts=np.array(cuts, np.int64))
    hidden = np.zeros(len(rows), np.int64)
    for begin, end, owner, below in zip(line.bounds, line.bounds[1:], line.owner, line.below, strict=False):
        for moment in range(begin, end):
            assert owner == winner(moment, rows)
            assert below == winner(moment, rows, floor=2)
            for i, (a, b, height) in enumerate(rows):
                if height > 2 and a <= moment < b and owner != i:
                    nested = a <= t0[owner] and t1[owner] <= b
                    hidden[i] += not nested
    assert line.overlapped.tolist() == hidden.tolist()
    assert set(cuts) <= set(line.bounds.tolist())


def test_a_long_chain_of_straddling_spans_is_cut_at_each_next_one() -> None:
    t0 = np.arange(0, 5_000, 5)
    t1 = t0 + 9
    line = sweep(t0, t1, np.zeros(len(t0), np.int64), floor=0, cuts=np.zeros(0, np.int64))
    own = np.zeros(len(t0), np.int64)
    np.add.at(own, line.owner, line.lengths)
    assert own.tolist() == [5] * (len(t0) - 1) + [9]
