"""Exact arithmetic on sets of moments: half-open intervals in integer nanoseconds, as two columns.

A *set* is int64 [n, 2], sorted and disjoint: what :func:`union` returns and the other functions take.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

EMPTY: Ints = np.zeros((0, 2), np.int64)


def union(intervals: Iterable[tuple[int, int]] | Ints) -> Ints:
    """The set of all moments in any of `intervals` [n, 2], which may overlap, touch, be empty and lie in any order.

    Raises ValueError for an interval that ends before it begins.
    """
    rows = np.asarray(intervals if isinstance(intervals, np.ndarray) else list(intervals), np.int64).reshape(-1, 2)
    if (rows[:, 1] < rows[:, 0]).any():
        raise ValueError("an interval ends before it begins")
    rows = rows[rows[:, 0] < rows[:, 1]]
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    if not len(rows):
        return EMPTY
    reach = np.maximum.accumulate(rows[:, 1])
    first = np.concatenate(([True], rows[1:, 0] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.stack((rows[first, 0], reach[last]), axis=1)


def intersect(a: Ints, b: Ints) -> Ints:
    """Moments in both sets."""
    if not len(a) or not len(b):
        return EMPTY
    # each interval of b that overlaps one of a begins before it ends and ends after it begins
    first = np.searchsorted(b[:, 1], a[:, 0], "right")
    last = np.searchsorted(b[:, 0], a[:, 1], "left")
    counts = np.maximum(last - first, 0)
    mine = np.repeat(np.arange(len(a)), counts)
    theirs = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    return np.stack((np.maximum(a[mine, 0], b[theirs, 0]), np.minimum(a[mine, 1], b[theirs, 1])), axis=1)


def subtract(a: Ints, b: Ints) -> Ints:
    """Moments of `a` that are not in `b`."""
    if not len(a) or not len(b):
        return a
    begin, end = int(min(a[0, 0], b[0, 0])), int(max(a[-1, 1], b[-1, 1]))
    outside = np.stack((np.concatenate(([begin], b[:, 1])), np.concatenate((b[:, 0], [end]))), axis=1)
    return intersect(a, outside[outside[:, 0] < outside[:, 1]])


def length(a: Ints) -> int:
    """Nanoseconds in a set."""
    return int((a[:, 1] - a[:, 0]).sum())
