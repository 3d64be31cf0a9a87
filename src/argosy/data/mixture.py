"""Which source gives the sample at a global index: a low-discrepancy interleave with a closed form.

The sources are the leaves of a binary tree. Of the first ``n`` samples that reach a node its lighter child gets
``floor(n · share + phase)`` and the heavier one the rest. Both counts rise by 0 or 1 with each sample, so what a source
was given before any index is known from the index alone: a seek costs as much as a step.

How far a source can be from its target: each node on its way rounds by at most half a sample, and what a node above
rounded reaches it divided by its share of that node. :meth:`Mixture.bound` adds it up. A Huffman tree keeps it small,
because a source's weight is a vanishing part of its far ancestors: at most 1 for up to four sources with any weights,
about 1.1 for a hundred like ones, never above 1.7. Where a source is more than one sample off at a multiple of 4,096,
samples near there change places (:meth:`Mixture._mended`), which needs no memory of other places either.

When weights change (a schedule, a source at its limit) there is another tree, whose phases take over what each source
is behind or ahead. Nothing depends on weights still to come: a schedule may be changed for what was not drawn yet.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FOREVER = 1 << 62
"""Index beyond any run."""
BOUNDARY = 1 << 12
"""At multiples of it each source is within one sample of its target."""
REACH = BOUNDARY // 2
"""How far from a boundary samples may change places for that."""


@dataclass(frozen=True)
class Stage:
    """Weights from a global index on.

    Attributes:
        first: global index of the first sample drawn with these weights.
        weights: one per source, ≥ 0, not all 0; only their ratios matter.
    """

    first: int
    weights: tuple[float, ...]


@dataclass(frozen=True)
class _Tree:
    """Nodes in an order in which parents come first; node 0 is the root, leaves are ``~source``."""

    children: NDArray[np.int64]
    """[nodes, 2] node or ``~source``."""

    @cached_property
    def path_of(self) -> list[list[tuple[int, int]]]:
        """For each source: (node, side) from the root down."""
        paths: dict[int, list[tuple[int, int]]] = {0: []}
        for node, pair in enumerate(self.children.tolist()):
            for side, child in enumerate(pair):
                paths[child] = [*paths[node], (node, side)]
        return [paths[~source] for source in range(len(self.children) + 1)] if len(self.children) else [[]]

    def sums(self, of_sources: Sequence[float]) -> Floats:
        """[nodes, 2] sum over the sources below each child."""
        found = np.zeros(self.children.shape)
        for node in range(len(self.children) - 1, -1, -1):
            for side, child in enumerate(self.children[node].tolist()):
                found[node, side] = of_sources[~child] if child < 0 else found[child].sum()
        return found


def _huffman(weights: Sequence[float]) -> _Tree:
    """Join the two lightest until one is left; ties by age, so that the tree is a function of the weights."""
    heap: list[tuple[float, int, int]] = [(weight, ~source, ~source) for source, weight in enumerate(weights)]
    heapq.heapify(heap)
    joined: list[tuple[int, int]] = []
    while len(heap) > 1:
        (light, _, first), (heavy, _, second) = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (light + heavy, len(joined), len(joined)))
        joined.append((first, second))
    last = len(joined) - 1  # built from the leaves up: turn around, so that the root is node 0
    turned = [tuple(child if child < 0 else last - child for child in pair) for pair in reversed(joined)]
    return _Tree(np.array(turned, dtype=np.int64).reshape(-1, 2))


@dataclass(frozen=True)
class _Segment:
    """A stretch of indices with constant weights."""

    first: int
    weights: tuple[float, ...]
    tree: _Tree
    light: Ints
    """[nodes] which child is the lighter one."""
    share: Floats
    """[nodes] its share of the node, at most a half."""
    phase: Floats
    """[nodes] what the lighter child is ahead, in [0, 1)."""
    counts: Ints
    """[sources] samples drawn before ``first``."""

    @cached_property
    def nodes(self) -> list[tuple[int, int, float, float]]:
        """(lighter child, heavier child, share, phase) of each node."""
        lighter = np.take_along_axis(self.tree.children, self.light[:, None], axis=1)[:, 0]
        heavier = np.take_along_axis(self.tree.children, 1 - self.light[:, None], axis=1)[:, 0]
        columns = (lighter, heavier, self.share, self.phase)
        return list(zip(*(column.tolist() for column in columns), strict=True))


class Mixture:
    """Sources in the proportions of a schedule.

    Args:
        stages: the schedule; the first one begins at index 0.
        limits: most samples of each source (None: no limit). A source at its limit gets weight 0 and the others share
            what it had.

    Raises:
        ValueError: weights are negative, not finite, all 0 or of another number than the limits; stages do not ascend.
    """

    def __init__(self, stages: Sequence[Stage], limits: Sequence[int | None]):
        _check(stages, limits)
        self.stages = tuple(stages)
        self.limits = tuple(limits)
        self.sources = len(limits)
        self._segments: list[_Segment] = []
        self._mend = lru_cache(maxsize=8)(self._mended)
        self.end = FOREVER
        """Global index at which every source with a weight has reached its limit."""
        self._lay_out()

    # -- asking -------------------------------------------------------------------------------------

    def sources_at(self, first: int, count: int) -> tuple[Ints, Ints]:
        """(source, how many samples of it came before) at the indices ``first … first + count - 1``.

        Raises:
            IndexError: an index is at or beyond ``end``.
        """
        if first + count > self.end:
            raise IndexError(f"the sources hold {self.end} samples, {first + count} are asked for")
        sources, ranks = self._raw(first, count)
        for boundary in range(-(-(first - REACH + 1) // BOUNDARY) * BOUNDARY, first + count + REACH, BOUNDARY):
            if (mended := self._mend(boundary)) is not None:
                begin = boundary - REACH
                here = slice(max(0, begin - first), min(count, begin + 2 * REACH - first))
                there = slice(max(0, first - begin), max(0, first - begin) + here.stop - here.start)
                sources[here], ranks[here] = mended[0][there], mended[1][there]
        return sources, ranks

    def counts(self, index: int) -> Ints:
        """[sources] samples of each source before a global index."""
        boundary = (index + REACH) // BOUNDARY * BOUNDARY
        if (mended := self._mend(boundary)) is not None:
            begin = boundary - REACH
            return self._counts_at(begin) + np.bincount(mended[0][: index - begin], minlength=self.sources)
        return self._counts_at(index)

    def targets(self, index: int) -> Floats:
        """[sources] what the weights ask for before a global index, as real numbers."""
        found = np.zeros(self.sources)
        for segment, after in zip(self._segments, [*self._segments[1:], None], strict=True):
            stop = min(index, after.first if after else index)
            if stop > segment.first:
                found += (stop - segment.first) * np.array(segment.weights) / sum(segment.weights)
        return found

    def bound(self) -> float:
        """No source is ever further from its target than this many samples, while weights are constant."""
        worst = 0.0
        for segment in self._segments:
            below = segment.tree.sums(segment.weights)
            for path, weight in zip(segment.tree.path_of, segment.weights, strict=True):
                if weight:
                    worst = max(worst, sum(0.5 * weight / below[node][side] for node, side in path))
        return worst

    def changes(self) -> list[Stage]:
        """Effective weights, with sources at their limit left out."""
        return [Stage(segment.first, segment.weights) for segment in self._segments]

    # -- the tree -----------------------------------------------------------------------------------

    def _raw(self, first: int, count: int) -> tuple[Ints, Ints]:
        """What the trees give, before samples near boundaries change places."""
        sources, ranks = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        done = 0
        while done < count:
            place = self._segment_at(first + done)
            segment, stop = self._segments[place], self._stop(place)
            part = slice(done, min(count, stop - first))
            numbers = np.arange(first + part.start - segment.first, first + part.stop - segment.first, dtype=np.int64)
            self._descend(segment, numbers, sources[part], ranks[part])
            done = part.stop
        return sources, ranks

    def _counts_at(self, index: int) -> Ints:
        segment = self._segments[self._segment_at(index)]
        return self._counts(segment, index - segment.first)

    def _mended(self, boundary: int) -> tuple[Ints, Ints] | None:
        """What stands around a boundary where trees leave a source more than one sample off; None: no need.

        A source that is ahead gives its last sample before the boundary for the first one behind it of the source that
        is most behind. Stretches with constant weights only; a source with no sample near the boundary stays.
        """
        begin = boundary - REACH
        if begin < 0:
            return None
        place = self._segment_at(begin)
        if self._stop(place) < boundary + REACH:
            return None
        ahead = self._counts_at(boundary) - self.targets(boundary)
        if np.abs(ahead).max() <= 1:
            return None
        sources, ranks = self._raw(begin, 2 * REACH)
        for _ in range(self.sources):
            furthest = int(np.abs(ahead).argmax())
            if abs(ahead[furthest]) <= 1:
                break
            before, after = np.unique(sources[:REACH]), np.unique(sources[REACH:])
            giver = furthest if ahead[furthest] > 0 else int(before[ahead[before].argmax()])
            taker = furthest if ahead[furthest] < 0 else int(after[ahead[after].argmin()])
            gives = np.flatnonzero(sources[:REACH] == giver)
            takes = np.flatnonzero(sources[REACH:] == taker)
            if not len(gives) or not len(takes):
                break
            pair = [int(gives[-1]), REACH + int(takes[0])]
            sources[pair], ranks[pair] = sources[pair[::-1]], ranks[pair[::-1]]
            ahead[giver] -= 1
            ahead[taker] += 1
        return sources, ranks

    def _stop(self, place: int) -> int:
        """Where a segment ends."""
        return self._segments[place + 1].first if place + 1 < len(self._segments) else self.end

    def _segment_at(self, index: int) -> int:
        return bisect_right(self._segments, index, key=lambda segment: segment.first) - 1

    def _descend(self, segment: _Segment, numbers: Ints, sources: Ints, ranks: Ints) -> None:
        """Follow samples from the root to their sources, all of them one level at a time."""
        if not len(segment.tree.children):
            sources[:] = 0
            ranks[:] = segment.counts[0] + numbers
            return
        places = np.arange(len(numbers))
        nodes = np.zeros(len(numbers), dtype=np.int64)
        while len(places):
            share, phase = segment.share[nodes], segment.phase[nodes]
            before = np.floor(numbers * share + phase).astype(np.int64)
            lighter = np.floor((numbers + 1) * share + phase).astype(np.int64) > before
            numbers = np.where(lighter, before, numbers - before)
            side = np.where(lighter, segment.light[nodes], 1 - segment.light[nodes])
            nodes = segment.tree.children[nodes, side]
            leaf = nodes < 0
            if leaf.any():
                at, source = places[leaf], ~nodes[leaf]
                sources[at] = source
                ranks[at] = segment.counts[source] + numbers[leaf]
                keep = ~leaf
                places, nodes, numbers = places[keep], nodes[keep], numbers[keep]

    def _counts(self, segment: _Segment, number: int) -> Ints:
        """[sources] samples of each before the segment's sample ``number``."""
        counts = segment.counts.copy()
        if not segment.nodes:
            return counts + number
        reached = [number] + [0] * len(segment.nodes)
        for node, (lighter, heavier, share, phase) in enumerate(segment.nodes):
            light = math.floor(reached[node] * share + phase)
            for child, given in ((lighter, light), (heavier, reached[node] - light)):
                if child < 0:
                    counts[~child] += given
                else:
                    reached[child] = given
        return counts

    # -- laying out ---------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        first, stage = 0, 0
        counts, wanted = np.zeros(self.sources, dtype=np.int64), np.zeros(self.sources)
        while True:
            while stage + 1 < len(self.stages) and self.stages[stage + 1].first <= first:
                stage += 1
            weights = tuple(
                0.0 if self._full(source, counts) else weight
                for source, weight in enumerate(self.stages[stage].weights)
            )
            after = self.stages[stage + 1].first if stage + 1 < len(self.stages) else FOREVER
            if not any(weights):
                self.end = first
                return
            segment = _segment(first, weights, counts, counts - wanted)
            self._segments.append(segment)
            stop = self._first_full(segment, after)
            if stop >= FOREVER:
                return
            wanted += (stop - first) * np.array(weights) / sum(weights)
            counts = self._counts(segment, stop - first)
            first = stop

    def _full(self, source: int, counts: Ints) -> bool:
        limit = self.limits[source]
        return limit is not None and bool(counts[source] >= limit)

    def _first_full(self, segment: _Segment, after: int) -> int:
        """Index at which a source reaches its limit, or ``after`` if that comes first."""
        limited = [source for source, limit in enumerate(self.limits) if limit is not None and segment.weights[source]]
        if not limited:
            return after

        def full_at(index: int) -> bool:
            counts = self._counts(segment, index - segment.first)
            return any(self._full(source, counts) for source in limited)

        low, high = segment.first + 1, segment.first + 2
        while high < after and not full_at(high):
            low, high = high, segment.first + 2 * (high - segment.first)
        high = min(high, after)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if full_at(middle) else (middle + 1, high)
        return high


def _segment(first: int, weights: tuple[float, ...], counts: Ints, ahead: Floats) -> _Segment:
    """The stretch that begins when each source is `ahead` of its target by so many samples."""
    tree = _huffman(weights)
    below = tree.sums(weights)
    light = (below[:, 1] < below[:, 0]).astype(np.int64)
    total = below.sum(1)
    share = np.divide(below.min(1), total, out=np.zeros(len(total)), where=total > 0)
    lead = tree.sums(ahead.tolist())
    lead_of_light = np.take_along_axis(lead, light[:, None], axis=1)[:, 0] if len(light) else np.zeros(0)
    phase = np.clip(0.5 - (lead_of_light - share * lead.sum(1)), 0.0, np.nextafter(1.0, 0.0))
    return _Segment(first, weights, tree, light, share, phase, counts)


def stages_of(weights: Sequence[float], later: Sequence[Mapping[int, float]]) -> list[Stage]:
    """One schedule from each source's first weight and what it changes to from an index on."""
    current, stages = list(weights), []
    for first in sorted({0, *(index for changes in later for index in changes)}):
        for source, changes in enumerate(later):
            current[source] = changes.get(first, current[source])
        stages.append(Stage(first, tuple(current)))
    return stages


def _check(stages: Sequence[Stage], limits: Sequence[int | None]) -> None:
    if not stages or stages[0].first != 0:
        raise ValueError("a mixture's first stage begins at index 0")
    for before, after in pairwise(stages):
        if after.first <= before.first:
            raise ValueError(f"stages must ascend: {after.first} comes after {before.first}")
    for stage in stages:
        if len(stage.weights) != len(limits):
            raise ValueError(f"{len(stage.weights)} weights for {len(limits)} sources")
        if not all(0 <= weight < float("inf") for weight in stage.weights):
            raise ValueError("weights are numbers from 0 on")
        if not sum(stage.weights) > 0:
            raise ValueError("the weights sum to 0")
