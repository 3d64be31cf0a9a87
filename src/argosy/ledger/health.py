"""Whether learning goes on: updates skipped or undone, spikes of the loss, and loss that no longer falls.

Busy devices prove nothing about learning. The run's visits are cut into windows of equal size; each is judged against
the noise of the windows before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from argosy.ledger.attempts import Source
from argosy.ledger.fate import AT_RISK, KEPT, SKIPPED, Visits

WINDOWS = 20
LEAST_VISITS = 10
SPIKE = 6.0
"""Deviations (1.4826 × MAD of the window) above the window's median."""
STALLED = 4
"""Windows over which the loss must have fallen by more than its noise."""


@dataclass(frozen=True)
class Window:
    """A stretch of visits, undone ones included."""

    first_step: int
    last_step: int
    loss: float | None
    """Median over applied updates, nats per token."""
    skipped_share: float
    undone_share: float
    spikes: int
    grad_norm: float | None
    """Median."""


@dataclass(frozen=True)
class Health:
    windows: list[Window]
    alerts: list[str]


def health(visits: Visits, leaders: Mapping[int, Source]) -> Health:
    """Windows and alerts of a run; `leaders` are one rank's file for each attempt."""
    loss, norm = np.full(len(visits), np.nan), np.full(len(visits), np.nan)
    for attempt, leader in leaders.items():
        steps = leader.file.steps
        if len(steps):
            rows = visits.rows_of(attempt, steps.step, steps.visit)
            loss[rows], norm[rows] = steps.loss, steps.grad_norm
    count = min(WINDOWS, len(visits) // LEAST_VISITS)
    windows, noise = [], []
    for rows in np.array_split(np.arange(len(visits)), count) if count else ():
        values = loss[rows][np.isfinite(loss[rows])]
        middle = float(np.median(values)) if len(values) else None
        deviation = 1.4826 * float(np.median(np.abs(values - middle))) if middle is not None else 0.0
        fate = visits.fate[rows]
        norms = norm[rows][np.isfinite(norm[rows])]
        windows.append(
            Window(
                first_step=int(visits.step[rows[0]]),
                last_step=int(visits.step[rows[-1]]),
                loss=middle,
                skipped_share=float((fate == SKIPPED).mean()),
                undone_share=float((~np.isin(fate, (KEPT, AT_RISK, SKIPPED))).mean()),
                spikes=int((values > middle + SPIKE * deviation).sum()) if middle is not None and deviation else 0,
                grad_norm=float(np.median(norms)) if len(norms) else None,
            )
        )
        noise.append(deviation / max(len(values), 1) ** 0.5 * 1.2533)
    return Health(windows, list(_alerts(windows, noise)))


def _alerts(windows: list[Window], noise: list[float]) -> list[str]:
    found = []
    for window in windows:
        where = f"steps {window.first_step:,} to {window.last_step:,}"
        if window.skipped_share > 0.05:
            found.append(f"{window.skipped_share:.0%} of the updates of {where} were skipped: lower the learning rate")
        if window.undone_share > 0.25:
            found.append(f"{window.undone_share:.0%} of the updates of {where} were undone later")
        if window.spikes:
            found.append(f"{window.spikes} spikes of the loss in {where}")
    known = [(window.loss, error) for window, error in zip(windows, noise, strict=True) if window.loss is not None]
    if len(known) > STALLED:
        (before, error), (now, own) = known[-1 - STALLED], known[-1]
        if before - now < 2 * (error**2 + own**2) ** 0.5:
            since = windows[-STALLED].first_step
            found.append(
                f"the loss has not fallen since step {since:,} ({before:.4g} → {now:.4g}): "
                "devices are busy, but loss per money has stalled"
            )
    return found
