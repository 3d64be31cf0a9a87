"""Who owns each moment, when intervals lie over each other: an exact sweep line in integer nanoseconds.

The upper level wins; within a level the later start, then the later number. So a nested interval takes its time from
the one around it, a straddling one is cut and not dropped, and parallel ones have one deterministic winner. Intervals
of a level that are disjoint, the usual case, are painted in one vector operation.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

NOBODY = -1


@dataclass
class Sweep:
    """Pieces between neighbouring bounds, each with its owner."""

    bounds: Ints
    """[pieces + 1]"""
    owner: Ints
    """[pieces] index of the interval that has it, or `NOBODY`."""
    below: Ints
    """[pieces] owner if there were nothing above `floor`."""
    overlapped: Ints
    """[intervals] time under an interval that is not nested in it: in the sum of spans, but in no account."""

    @property
    def lengths(self) -> Ints:
        return np.diff(self.bounds)


def sweep(t0: Ints, t1: Ints, level: Ints, *, floor: int, cuts: Ints) -> Sweep:
    """Sweep half-open intervals [t0, t1) with t0 <= t1; `cuts` are further bounds."""
    bounds = np.unique(np.concatenate((t0, t1, cuts)))
    first, last = np.searchsorted(bounds, t0), np.searchsorted(bounds, t1)
    owner = np.full(max(len(bounds) - 1, 0), NOBODY, np.int64)
    below = owner
    layers: list[tuple[int, Ints, Ints]] = []
    for height in np.unique(level):
        if height > floor and below is owner:
            below = owner.copy()
        members = np.flatnonzero((level == height) & (t0 < t1))
        for layer in _layers(members, t0, t1):
            pieces, owners = _spread(layer, first, last)
            owner[pieces] = owners
            layers.append((int(height), pieces, owners))
    overlapped = np.zeros(len(t0), np.int64)
    lengths = np.diff(bounds)
    for height, pieces, owners in layers:
        if height <= floor:
            continue
        winner = owner[pieces]
        hidden = (winner != owners) & ~((t0[owners] <= t0[winner]) & (t1[winner] <= t1[owners]))
        np.add.at(overlapped, owners[hidden], lengths[pieces[hidden]])
    return Sweep(bounds, owner, below.copy() if below is owner else below, overlapped)


def _layers(members: Ints, t0: Ints, t1: Ints) -> list[Ints]:
    """Split intervals of one level into disjoint sets; of two that overlap, the one that wins is in the later set."""
    # later start wins; of two that start together the shorter is the nested one, then the later number
    rest = members[np.lexsort((members, -t1[members], t0[members]))]
    layers: list[Ints] = []
    while len(rest):
        reach = np.maximum.accumulate(t1[rest])
        free = np.ones(len(rest), bool)
        free[1:] = t0[rest[1:]] >= reach[:-1]
        if len(layers) == 32 and not free.all():
            return layers + _chains(rest, t1, t0)
        layers.append(rest[free])
        rest = rest[~free]
    return layers


def _chains(rest: Ints, t1: Ints, t0: Ints) -> list[Ints]:
    """The same for long chains of straddling intervals, where peeling would take a round per link."""
    ends: list[int] = []  # of each layer so far
    layers: list[list[int]] = []
    for member in rest.tolist():
        # above every layer that is still open: it started later than they did
        height = max((i + 1 for i, end in enumerate(ends) if end > t0[member]), default=0)
        if height == len(ends):
            ends.append(0)
            layers.append([])
        ends[height] = int(t1[member])
        layers[height].append(member)
    return [np.array(layer, np.int64) for layer in layers]


def _spread(layer: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """The pieces under each interval of a disjoint set, and whose they are."""
    counts = last[layer] - first[layer]
    begins = np.cumsum(counts) - counts
    pieces = np.repeat(first[layer] - begins, counts) + np.arange(counts.sum())
    return pieces, np.repeat(layer, counts)
