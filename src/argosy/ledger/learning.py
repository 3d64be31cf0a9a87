"""What was learned, and what it had cost by then: loss curves over paid time, speed of each attempt.

Loss, tokens and step numbers are the same on all ranks, so one rank's file per attempt is read: its
*leader's*. Rates belong to one attempt, its tokens over its own windows, so that neither a restart nor an
evaluation makes them look better or worse.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.journal.reader import OPEN, JournalFile
from argosy.ledger.attempts import Source
from argosy.ledger.curve_point import Point
from argosy.ledger.fate import AT_RISK, KEPT, Visits

CURVE_POINTS = 200

Ints = NDArray[np.int64]
CostAt = Callable[[int], tuple[int, str | None]]
"""Run time in ns → device-ns and money paid for the run until then."""


@dataclass(frozen=True)
class Speed:
    """Rates of one attempt. None where it took no step."""

    visits: int
    tokens: int
    """All tokens of all visits: with loss, context and padding."""
    own_ns: int
    """Time in step windows, without evaluations and saves that fell into them."""
    step_time_s: float | None
    """Median."""

    @property
    def tokens_per_s(self) -> float | None:
        """Of all ranks together."""
        return self.tokens * 1e9 / self.own_ns if self.own_ns else None


def speed(leader: JournalFile) -> Speed:
    """Rates of the attempt that `leader` is a rank of."""
    own = own_windows(leader)
    return Speed(
        visits=len(own),
        tokens=int(leader.steps.tokens.sum()),
        own_ns=int(own.sum()),
        step_time_s=float(np.median(own)) / 1e9 if len(own) else None,
    )


def own_windows(file: JournalFile) -> Ints:
    """[steps] length of each window without the placed spans inside it [ns]."""
    steps, spans = file.steps, file.spans
    own = steps.t1 - steps.t0
    placed = (spans.depth == 0) & (spans.t1 != OPEN)
    t0, length = spans.t0[placed], (spans.t1 - spans.t0)[placed]
    window = np.searchsorted(steps.t1, t0, side="right")  # of the first step that ends after the span began
    inside = window < len(steps)
    window, t0, length = window[inside], t0[inside], length[inside]
    inside = t0 >= steps.t0[window]  # start-up spans lie before the first window
    np.subtract.at(own, window[inside], length[inside])
    return own


def training_curve(visits: Visits, leaders: Mapping[int, Source], cost_at: CostAt) -> list[Point]:
    """The steps that the model is made of, in at most :data:`CURVE_POINTS` points.

    Each point is the mean loss over a stretch of steps, weighted by tokens with loss, placed at the stretch's end.
    """
    loss = np.full(len(visits), np.nan)
    for attempt, leader in leaders.items():
        steps = leader.file.steps
        if len(steps):
            loss[visits.rows_of(attempt, steps.step, steps.visit)] = steps.loss
    line = np.flatnonzero(_in_model(visits))
    tokens = visits.tokens[line, 0]
    seen = np.cumsum(tokens)
    points = []
    for stretch in np.array_split(np.arange(len(line)), min(CURVE_POINTS, max(1, len(line)))):
        if not len(stretch):
            continue
        last, rows = stretch[-1], line[stretch]
        weights = tokens[stretch] * np.isfinite(loss[rows])
        mean = float(np.average(np.nan_to_num(loss[rows]), weights=weights)) if weights.any() else None
        paid_ns, money = cost_at(int(visits.t1_ns[line[last]]))
        points.append(Point(int(visits.step[line[last]]) + 1, int(seen[last]), paid_ns, money, mean))
    return points


def evaluation_curve(visits: Visits, leaders: Iterable[Source], cost_at: CostAt) -> list[Point]:
    """Every evaluation of a state that the model went through; those of undone states are left out."""
    in_model = _in_model(visits)
    points = []
    for leader in leaders:
        for event in leader.file.of_kind("eval"):
            if not {"t", "s"} <= event.keys():
                continue  # a record of another version, that cannot be placed
            at_ns, updates = event["t"] + leader.offset_ns, event["s"]
            made = np.flatnonzero((visits.step == updates - 1) & (visits.t1_ns <= at_ns))
            if updates and not (len(made) and in_model[made[-1]]):
                continue
            paid_ns, money = cost_at(at_ns)
            points.append(
                Point(
                    step=updates,
                    tokens=int(visits.tokens[in_model & (visits.step < updates), 0].sum()),
                    paid_ns=paid_ns,
                    money=money,
                    loss=event.get("loss"),
                    bits_per_byte=event.get("bpb"),
                    full=bool(event.get("full", True)),
                )
            )
    return points


def _in_model(visits: Visits) -> NDArray[np.bool_]:
    return np.isin(visits.fate, (KEPT, AT_RISK))


def last_of_kind(files: Iterable[JournalFile], kind: str) -> dict[str, Any] | None:
    """The newest record of a kind over `files` in order, or None."""
    records = [record for file in files for record in file.of_kind(kind)]
    return records[-1] if records else None
