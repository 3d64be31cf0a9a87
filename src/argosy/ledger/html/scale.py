"""Round axis marks, and labels that keep their distance. Pure functions of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [begin, end] of a picture."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        return self.begin + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.begin)


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` multiples of 1, 2 or 5 times a power of ten in [low, high]; one if there is no span."""
    span = high - low
    if not span > 0 or most < 2:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    for step in (power * factor for factor in (1, 2, 5, 10, 20, 50)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [number * step for number in range(first, last + 1)]
    return [low]


def padded(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """The span of `values` with some air on both sides; never empty."""
    low, high = min(values), max(values)
    air = (high - low) * share or abs(high) * 0.1 or 1.0
    return low - air, high + air


def spread(places: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """`places` moved as little as it takes to stay `least` apart and within [low, high], in the same order.

    Overlapping neighbours become a block around their mean. When not all fit, they share the room evenly.
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    if not order:
        return []
    least = min(least, (high - low) / max(len(order) - 1, 1))
    blocks: list[tuple[float, int]] = []  # first place, members
    for index in order:
        start, members = min(max(places[index], low), high), 1
        while blocks and blocks[-1][0] + blocks[-1][1] * least > start + 1e-12:
            before, count = blocks.pop()
            centre = (before + (count - 1) * least / 2) * count + (start + (members - 1) * least / 2) * members
            members += count
            start = centre / members - (members - 1) * least / 2
            start = min(max(start, low), high - (members - 1) * least)
        blocks.append((start, members))
    moved = [start + k * least for start, members in blocks for k in range(members)]
    placed = [0.0] * len(places)
    for index, place in zip(order, moved, strict=True):
        placed[index] = place
    return placed
