"""Who made them wait, doing what: a second view of `comm.wait_slow_rank` that sums to it exactly.

Each wait has a culprit, the last to come. What it was doing while the others waited is the cause
(research/ledger.md 3.6). In sampled steps the order of its phases says so; if it was itself waiting, its own culprit
is followed for that while, and since time strictly decreases this ends. In other steps the culprit is the rank that
stood still least, and the cause what took it longer than the median of its peers in the same step. Where no journal
says more the cause is `unknown`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from argosy.journal.line import Stretch, lines
from argosy.journal.phys import MATH
from argosy.journal.phys import PHYS as JOURNAL_PHYS
from argosy.ledger.accounts import PHYS
from argosy.ledger.attempts import Source
from argosy.ledger.fate import AT_RISK, KEPT, Visits
from argosy.ledger.join import Waited
from argosy.ledger.waits import NOBODY_KNOWS, Waits

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNKNOWN = "unknown"
WAIT = PHYS.index("comm.wait")
OWN = [*(name for name in JOURNAL_PHYS if not name.startswith("comm.")), "contention", "launch_gap", "between phases"]
PEERS = 16
"""Members of a group that a slow rank is compared with."""
DEEPEST = 20
"""Culprits of culprits that are followed."""

Weights = dict[tuple[int | None, str], float]
"""(rank, what it was doing) → ns; rank None is nobody known."""


@dataclass(frozen=True)
class Cause:
    """What one rank was doing while others waited for it."""

    rank: int | None
    """None: nobody knows."""
    host: str | None
    doing: str
    """A phase, `contention`, `between phases` or `unknown`."""
    ns: int
    """Device-ns of the others, of what is in `comm.wait_slow_rank`."""
    steps: int
    """Steps in which it was so."""


def causes(
    ranks: Sequence[Source], waits: Mapping[int, Waits], visits: Visits, by_visit: Ints, whole_ns: int
) -> list[Cause]:
    """Divide `whole_ns`, the account's total, among causes; the largest first.

    `by_visit` [visits, PHYS] is what was booked for each visit over all devices.
    """
    total: Weights = defaultdict(float)
    steps: dict[tuple[int | None, str], int] = defaultdict(int)
    hosts = {source.file.rank: source.file.header["host"] for source in ranks}
    booked_ns = 0
    for attempt, found in waits.items():
        mine = [source for source in ranks if source.file.attempt == attempt]
        view = _Attempt(mine, found, visits, by_visit)
        booked_ns += view.booked_ns
        for key, (ns, count) in view.weights().items():
            total[key] += ns
            steps[key] += count
    rest_ns = whole_ns - booked_ns
    for key, ns in _of_spans(waits).items() if rest_ns > 0 else ():
        total[key] += ns
    known_ns = sum(total.values())
    if known_ns < whole_ns:
        total[None, UNKNOWN] += whole_ns - known_ns
    shares = _divided(total, whole_ns)
    rows = [Cause(rank, hosts.get(rank), doing, ns, steps[rank, doing]) for (rank, doing), ns in shares.items() if ns]
    return sorted(rows, key=lambda cause: (-cause.ns, cause.rank is None, cause.rank or 0, cause.doing))


def _divided(weights: Weights, whole_ns: int) -> dict[tuple[int | None, str], int]:
    """Integers in proportion to `weights` whose sum is `whole_ns`."""
    known = sum(weights.values())
    if not known or not whole_ns:
        return {}
    scaled = {key: weight * whole_ns / known for key, weight in weights.items()}
    floors = {key: int(value) for key, value in scaled.items()}
    left = whole_ns - sum(floors.values())
    order = sorted(scaled, key=lambda key: (floors[key] - scaled[key], str(key)))
    for number in range(abs(left)):
        floors[order[number % len(order)]] += 1 if left > 0 else -1
    return floors


def _of_spans(waits: Mapping[int, Waits]) -> Weights:
    """Waits inside evaluations, saves and start-up phases: their rank that stood still least was busy in them."""
    found: Weights = defaultdict(float)
    for attempt in waits.values():
        for key, ns in attempt.span_waits.items():
            found[key] += ns
    return found


@dataclass
class _Attempt:
    """The weights of one attempt."""

    ranks: Sequence[Source]
    waits: Waits
    visits: Visits
    by_visit: Ints
    booked: Floats = field(init=False)
    """[columns of `waits.held`] device-ns in the account, by visit."""

    def __post_init__(self) -> None:
        attempt, held = self.ranks[0].file.attempt, self.waits.held
        mine = np.flatnonzero(self.visits.attempt == attempt)
        row_of = {
            (int(self.visits.step[row]), int(self.visits.visit[row])): row
            for row in mine
            if self.visits.fate[row] in (KEPT, AT_RISK)
        }
        self.booked = np.array(
            [self.by_visit[row_of[key], WAIT] if key in row_of else 0 for key in held.visits], np.float64
        )
        self._file_of = {source.file.rank or 0: source for source in self.ranks}
        self._own_of: dict[int, Floats] = {}
        self._column_of = {key: column for column, key in enumerate(held.visits)}

    @property
    def booked_ns(self) -> int:
        return int(self.booked.sum())

    def weights(self) -> dict[tuple[int | None, str], tuple[float, int]]:
        """(rank, doing) → (ns, steps)."""
        total: dict[tuple[int | None, str], float] = defaultdict(float)
        steps: dict[tuple[int | None, str], int] = defaultdict(int)
        sampled = self._sampled()
        held = self.waits.held
        known = np.zeros(len(held.visits))
        for column in sampled:
            known[column] = 1
        for column, parts in sampled.items():
            whole = sum(parts.values())
            for key, ns in parts.items():
                if whole and self.booked[column]:
                    total[key] += self.booked[column] * ns / whole
                    steps[key] += 1
        everybody = sum(
            (waited for (channel, _), waited in held.waited.items() if channel != "pp"), np.zeros(len(known))
        )
        scale = np.divide(self.booked * (1 - known), everybody, out=np.zeros(len(known)), where=everybody > 0)
        for (channel, group), waited in held.waited.items():
            if channel == "pp":
                continue  # a pipeline stage that waits is bubble, not a slow rank
            share = waited * scale
            culprit = held.culprit[channel, group]
            for index in np.unique(culprit[share > 0]):
                rows = np.flatnonzero((culprit == index) & (share > 0))
                if index == NOBODY_KNOWS:
                    total[None, UNKNOWN] += float(share[rows].sum())
                    continue
                rank = held.ranks[int(index)]
                of_row = self._excess(rank, self.waits.held.members[channel, group], rows)
                sums = of_row.sum(axis=1)
                blamed = np.divide(share[rows], sums, out=np.zeros(len(rows)), where=sums > 0)
                for position, name in enumerate(OWN):
                    ns = float((of_row[:, position] * blamed).sum())
                    if ns:
                        total[rank, name] += ns
                        steps[rank, name] += int((of_row[:, position] * 2 > sums).sum())
                left = float(share[rows][sums <= 0].sum())
                if left:
                    total[rank, UNKNOWN] += left
        return {key: (ns, steps[key]) for key, ns in total.items()}

    # -- unsampled steps ---------------------------------------------------------------------------

    def _excess(self, rank: int, members: Sequence[int], rows: Ints) -> Floats:
        """[rows, OWN] what took a rank longer than its peers; alone in its group, longer than its own median."""
        mine = self._own(rank)
        peers = [self._own(other)[rows] for other in members[:PEERS] if other != rank]
        usual = np.median(np.stack(peers), axis=0) if peers else np.median(mine, axis=0)
        return np.maximum(mine[rows] - usual, 0)

    def _own(self, rank: int) -> Floats:
        """[columns of `held`, OWN] what a rank did besides communicating."""
        if rank not in self._own_of:
            file = self._file_of[rank].file
            steps, width = file.steps, file.steps.amounts.shape[1]
            own = np.zeros((len(steps), len(OWN)))
            for column, name in enumerate(file.phys[:width]):
                if name in OWN:
                    own[:, OWN.index(name)] = steps.amounts[:, column]
            queued, gone = steps.off_cpu[:, 1], steps.off_cpu[:, 0] - steps.off_cpu[:, 1]
            math = [OWN.index(name) for name in MATH]
            whole = np.maximum(own[:, math].sum(axis=1), 1)
            for column in math:  # what a phase did without a processor is not that phase's doing
                own[:, column] -= own[:, column] / whole * (queued + gone)
            own[:, -3:] = np.column_stack((queued, gone, steps.t1 - steps.t0 - steps.amounts.sum(axis=1)))
            table = np.zeros((len(self.waits.held.visits), len(OWN)))
            for row, key in enumerate(zip(steps.step.tolist(), steps.visit.tolist(), strict=True)):
                table[self._column_of[key]] = own[row]
            self._own_of[rank] = table
        return self._own_of[rank]

    # -- sampled steps -----------------------------------------------------------------------------

    def _sampled(self) -> dict[int, Weights]:
        """Column of `held` → weights, from the order of phases."""
        by_step: dict[int, list[Waited]] = defaultdict(list)
        for wait in self.waits.held.sampled:
            if wait.culprit is not None and wait.ready_ns > wait.begin_ns and wait.axis != "pp":
                by_step[wait.step].append(wait)
        doing = {
            rank: dict(lines(source.file.events, source.file.phys))
            for rank, source in self._file_of.items()
            if source.file.rank is not None
        }
        last = {key[0]: column for column, key in enumerate(self.waits.held.visits)}
        found: dict[int, Weights] = {}
        for step, listed in by_step.items():
            if step not in last:
                continue
            look = _Look(step, doing, self._file_of, self.waits.offsets, self.waits.held.sampled)
            weights: Weights = defaultdict(float)
            for wait in listed:
                assert wait.culprit is not None
                look.blame(weights, wait.culprit, wait.begin_ns, wait.ready_ns, 0)
            found[last[step]] = weights
        return found


class _Look:
    """What each rank did in one sampled step, on the step's reference clock."""

    def __init__(
        self,
        step: int,
        doing: Mapping[int, Mapping[int, list[Stretch]]],
        files: Mapping[int, Source],
        offsets: Mapping[tuple[int, str], int],
        sampled: Sequence[Waited],
    ):
        self._lines = {
            rank: (of_rank.get(step, []), offsets.get((step, files[rank].file.header["boot_id"]), 0))
            for rank, of_rank in doing.items()
        }
        self._waits: dict[int, list[Waited]] = defaultdict(list)
        for wait in sampled:
            if wait.step == step:
                self._waits[wait.rank].append(wait)

    def blame(self, weights: Weights, rank: int, begin: int, end: int, depth: int) -> None:
        """Divide [begin, end) by what `rank` was doing; where it waited, by what its culprit was doing."""
        line, offset = self._lines.get(rank, ([], 0))
        at = begin
        for stretch in line:
            t0, t1 = max(stretch.t0_ns + offset, at), min(stretch.t1_ns + offset, end)
            if t0 >= t1:
                continue
            weights[rank, UNKNOWN] += t0 - at
            if stretch.phys is not None and stretch.phys.startswith("comm."):
                self._follow(weights, rank, stretch.phys, t0, t1, depth)
            else:
                weights[rank, stretch.phys or "between phases"] += t1 - t0
            at = t1
        weights[rank, UNKNOWN] += max(0, end - at)

    def _follow(self, weights: Weights, rank: int, phys: str, begin: int, end: int, depth: int) -> None:
        at = begin
        for wait in self._waits[rank]:
            t0, t1 = max(wait.begin_ns, at), min(wait.ready_ns, end)
            if t0 >= t1 or wait.culprit is None:
                continue
            weights[rank, phys] += t0 - at
            if depth < DEEPEST:
                self.blame(weights, wait.culprit, t0, t1, depth + 1)
            else:
                weights[wait.culprit, UNKNOWN] += t1 - t0
            at = t1
        weights[rank, phys] += end - at
