"""Proof from a run's records that its kept steps used each sample exactly once per epoch, or what they did instead.

Two independent witnesses are compared. What *should* have been used follows from the recipe: the order is a function of
seed, epoch and global index, and each attempt's `order` record says at which index it began. What *was* used, each rank
has noted in its `data` records as a sum over the samples that went into its model. The lineage of the model (which
attempt made which step) comes from `restore` and `ckpt` records alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.data.mixture import Mixture
from argosy.data.position import Position
from argosy.data.samples import Drawn, SampleOrder
from argosy.data.served import sample_sum


@dataclass(frozen=True)
class Leg:
    """Steps that one attempt did without going back, and that the model kept: ``first … stop - 1``."""

    attempt: int
    world: int
    first: int
    stop: int
    position: Position
    batch: int

    def after(self) -> Position:
        """The position behind its last step."""
        position = self.position
        for _ in range(self.first, self.stop):
            _, position = position.take(self.batch)
        return position


@dataclass
class Audit:
    """What was found.

    Attributes:
        legs: the kept steps in order.
        steps, samples: how many are kept.
        sources: per source its samples, how many were used, and passes over it.
        skipped: stretches of global indices that were left out on purpose.
        confirmed: steps whose samples the ranks' own sums were compared with.
        not_applied: kept steps whose update was left out because it was not finite.
        faults: contradictions, in words; none: each sample was used exactly once per epoch.
    """

    legs: list[Leg] = field(default_factory=list)
    steps: int = 0
    samples: int = 0
    sources: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[tuple[int, int]] = field(default_factory=list)
    confirmed: int = 0
    not_applied: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Journal:
    """Records of one rank's file, as they were written: ``order``, ``restore``, ``ckpt``, ``step`` and ``data``."""

    attempt: int
    rank: int
    world: int
    records: Sequence[dict[str, Any]]


def audit(journals: Sequence[Journal], order: SampleOrder, limits: Sequence[int | None]) -> Audit:
    """Compare the records of all attempts and ranks with the order that the recipe says.

    Args:
        order: of a fresh run of the recipe; the weights that were really in force come from the records.
        limits: most samples of each source.
    """
    found = Audit(legs=_kept(journals))
    _check_joints(found)
    used = [_Used(count) for count in order.samples]
    for number, leg in enumerate(found.legs):
        mixture = Mixture(leg.position.weights, limits) if leg.position.weights else order.mixture
        _follow(leg, SampleOrder(order.seed, order.samples, order.names, mixture), journals, used, found)
        found.steps += leg.stop - leg.first
        if number == len(found.legs) - 1:
            end = leg.after().index
            found.skipped = [stretch for stretch in leg.position.skipped if sum(stretch) <= end]
            for first, count in found.skipped:
                _mark(used, SampleOrder(order.seed, order.samples, order.names, mixture).draw(first, count))
    found.not_applied = _not_applied(journals, found.legs)
    for name, one in zip(order.names, used, strict=True):
        found.faults += [f"{name or 'data'}: {fault}" for fault in one.faults()]
        found.sources.append({"name": name, "samples": one.samples, "used": one.used, "epochs": one.used / one.samples})
    return found


def _follow(leg: Leg, order: SampleOrder, journals: Sequence[Journal], used: "list[_Used]", found: Audit) -> None:
    """Draw what the leg's steps should have used, and compare it with what its ranks noted."""
    sums = _sums(journals, leg)
    begins = {start for start, _ in sums}
    expected, since, position = 0, leg.first, leg.position
    for step in range(leg.first, leg.stop):
        window, position = position.take(leg.batch)
        for first, count in window:
            drawn = order.draw(first, count)
            found.samples += count
            expected = (expected + sample_sum(drawn.source, drawn.epoch, drawn.sample)) % (1 << 64)
            _mark(used, drawn)
        if (since, step + 1) in sums:
            found.confirmed += step + 1 - since
            if sums[since, step + 1] != expected:
                found.faults.append(
                    f"attempt {leg.attempt}, steps {since} to {step}: "
                    "the ranks trained on other samples than the order says"
                )
        if step + 1 in begins:
            expected, since = 0, step + 1


def _mark(used: "list[_Used]", drawn: Drawn) -> None:
    for source in np.unique(drawn.source).tolist():
        here = drawn.source == source
        used[source].add(drawn.epoch[here], drawn.sample[here])


def _not_applied(journals: Sequence[Journal], legs: Sequence[Leg]) -> list[int]:
    """Kept steps whose update was left out, because it was not finite: their samples taught nothing."""
    of_attempt = {leg.attempt: leg for leg in legs}
    steps = {
        record["s"]
        for journal in journals
        if (leg := of_attempt.get(journal.attempt)) is not None
        for record in journal.records
        if record["k"] == "step" and record.get("x") and leg.first <= record["s"] < leg.stop
    }
    return sorted(steps)


def _kept(journals: Sequence[Journal]) -> list[Leg]:
    """The lineage of the model: of each attempt what no later restore undid, up to the last commit."""
    begun: list[tuple[Leg, int]] = []
    committed = 0
    for attempt in sorted({journal.attempt for journal in journals}):
        leader = min((one for one in journals if one.attempt == attempt), key=lambda one: one.rank)
        for record in leader.records:
            kind = record["k"]
            if kind == "order":
                position = Position.from_dict(record)
                begun.append((Leg(attempt, leader.world, record["s"], record["s"], position, record["b"]), record["s"]))
            elif kind == "step" and begun:
                leg = begun[-1][0]
                begun[-1] = (leg, max(begun[-1][1], record["s"] + 1))
        others = [one for one in journals if one.attempt == attempt]
        for record in (record for one in others for record in one.records):
            if record["k"] == "ckpt" and record.get("ph") == "committed" and record.get("tier") == "storage":
                committed = max(committed, record["s"]) if begun and record["s"] <= begun[-1][1] else committed
    stop = None
    kept = []
    for leg, end in reversed(begun):
        stop = min(committed if stop is None else stop, end)
        if leg.first < stop:
            kept.append(Leg(leg.attempt, leg.world, leg.first, stop, leg.position, leg.batch))
        stop = min(stop, leg.first)
    return kept[::-1]


def _check_joints(found: Audit) -> None:
    """Each kept step once, and each leg begins at the index where the one before it ended."""
    step, position = 0, Position()
    for number, leg in enumerate(found.legs):
        if number == 0:
            step, position = leg.first, leg.position
        if leg.first != step:
            found.faults.append(f"steps {step} to {leg.first - 1} are in no attempt's records")
        elif leg.position.index != position.index:
            found.faults.append(
                f"attempt {leg.attempt} begins step {leg.first} at sample {leg.position.index}, "
                f"the attempt before ended at {position.index}"
            )
        step, position = leg.stop, leg.after()


def _sums(journals: Iterable[Journal], leg: Leg) -> dict[tuple[int, int], int]:
    """Of each stretch of steps that all data ranks of the leg's attempt noted: the sum over them."""
    shares: dict[tuple[int, int], dict[int, int]] = {}
    ranks: dict[tuple[int, int], int] = {}
    for journal in journals:
        if journal.attempt != leg.attempt:
            continue
        for record in journal.records:
            if record["k"] == "data" and "sum" in record:
                stretch = record["s"], record["s"] + record["n"]
                rank, ranks[stretch] = record["r"]
                shares.setdefault(stretch, {})[rank] = int(record["sum"], 16)
    return {
        stretch: sum(by_rank.values()) % (1 << 64)
        for stretch, by_rank in shares.items()
        if len(by_rank) == ranks[stretch] and leg.first <= stretch[0] and stretch[1] <= leg.stop
    }


class _Used:
    """Which samples of a source each epoch used; epochs that are complete take no memory."""

    def __init__(self, samples: int):
        self.samples = samples
        self.used = 0
        self._twice = 0
        self._seen: dict[int, NDArray[np.bool_]] = {}
        self._complete: set[int] = set()

    def add(self, epochs: NDArray[np.int64], ids: NDArray[np.int64]) -> None:
        self.used += len(ids)
        for epoch in np.unique(epochs).tolist():
            chosen = ids[epochs == epoch]
            if epoch in self._complete:
                self._twice += len(chosen)
                continue
            seen = self._seen.setdefault(epoch, np.zeros(self.samples, dtype=np.bool_))
            self._twice += int(seen[chosen].sum()) + len(chosen) - len(np.unique(chosen))
            seen[chosen] = True
            if seen.all():
                self._complete.add(epoch)
                del self._seen[epoch]

    def faults(self) -> Iterator[str]:
        if self._twice:
            yield f"{self._twice} samples were used again within an epoch"
        newest = max((*self._seen, *self._complete), default=0)
        for epoch, seen in sorted(self._seen.items()):
            if epoch < newest:
                yield f"{self.samples - int(seen.sum())} samples of epoch {epoch} were left out"
