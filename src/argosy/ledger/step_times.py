"""From the phases that a rank declared in a step to what its device did: the divisions, in their order.

1. What exceeds the settled step is warm-up (:mod:`argosy.ledger.warmup`).
2. Of the math phases: time without a processor, of which the kernel says how much others had.
3. Of the math phases: what the device did in them (:mod:`argosy.ledger.device`); recomputation.
4. Of what is left of forward and backward: the share of positions that are padding.
5. Of exposed communication: waiting and moving bytes (:mod:`argosy.ledger.waits`).

Every division moves integers between columns and leaves their sum as it was.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.journal.phys import MATH
from argosy.journal.reader import JournalFile
from argosy.ledger.accounts import PHYS
from argosy.ledger.device import Profiles
from argosy.ledger.exposed import CHANNELS, EXPOSED, Division
from argosy.ledger.warmup import WARM, Warmup, settle

Ints = NDArray[np.int64]
P = {name: index for index, name in enumerate(PHYS)}
_MATH = [P[name] for name in MATH]
_WARM = np.array([name in WARM for name in PHYS])
_TRANSFER = [P[f"comm.transfer.{channel}"] if channel != "control" else P["comm.control"] for channel in CHANNELS]
_WAIT = [P["bubble"] if channel == "pp" else P["comm.wait"] for channel in CHANNELS]


@dataclass
class StepTimes:
    """[steps, PHYS] times of each step, and the part of them that is an estimate."""

    times: Ints
    estimated: Ints
    warmup: Warmup


def step_times(file: JournalFile, rows: Ints, times: Ints, waits: Division | None) -> StepTimes:
    """Divide `times` [steps, PHYS] of the `rows` of a file's steps."""
    excess, warmup = settle(file.attempt, file.rank or 0, times, _WARM)
    if warmup.moved_ns:
        times = times - excess
        times[:, P["warmup"]] += excess.sum(axis=1)
    times = _without_processor(times, file.steps.off_cpu[rows])
    profiles = Profiles.of(file)
    whole = np.zeros((len(file.steps), len(PHYS)), np.int64)
    whole[rows] = times
    whole, guessed = profiles.divide(whole)
    times, estimated = whole[rows], guessed[rows]
    if not len(profiles) and (file.header.get("layout") or {}).get("recompute", "none") == "full":
        # full recomputation repeats the forward pass: as long as nobody looked closer, as long as that took
        again = np.minimum(times[:, P["forward"]], times[:, P["backward"]] // 2)
        _move(times, P["backward"], P["recompute"], again)
        estimated[:, P["recompute"]] += again
    tokens = file.steps.tokens[rows]
    total = np.maximum(tokens.sum(axis=1), 1)
    for phase in (P["forward"], P["backward"]):
        _move(times, phase, P["padding"], _part(times[:, phase], tokens[:, 2] / total))
    if waits is not None:
        divide_communication(times, estimated, Division(waits.wait[rows], waits.untold[rows], waits.exact[rows]))
    return StepTimes(times, estimated, warmup)


def divide_communication(times: Ints, estimated: Ints, waits: Division) -> None:
    """Move exposed communication of `times` [rows, PHYS] to waiting and transfer, in place."""
    for column, (exposed, transfer, wait) in enumerate(zip(EXPOSED, _TRANSFER, _WAIT, strict=True)):
        whole = times[:, exposed].copy()
        if not whole.any():
            continue
        waiting = _part(whole, waits.wait[:, column])
        untold = np.minimum(_part(whole, waits.untold[:, column]), whole - waiting)
        _move(times, exposed, wait, waiting)
        _move(times, exposed, transfer, whole - waiting - untold)
        estimated[~waits.exact, wait] += waiting[~waits.exact]
        estimated[~waits.exact, transfer] += (whole - waiting - untold)[~waits.exact]


def _without_processor(times: Ints, off_cpu: Ints) -> Ints:
    """Take what had no processor out of the math phases, each by its length: queued is contention, the rest a gap."""
    math_ns = times[:, _MATH].sum(axis=1)
    off = np.minimum(off_cpu[:, 0], math_ns)  # the excess of a warm-up step may hold some of it already
    if not off.any():
        return times
    times = times.copy()
    left = off.copy()
    shortest_first = sorted(_MATH, key=lambda phase: int(times[:, phase].sum()))
    for phase in shortest_first:
        # the longest comes last and takes what rounding left
        part = left if phase == shortest_first[-1] else _part(off, times[:, phase] / np.maximum(math_ns, 1))
        part = np.minimum(part, times[:, phase])
        times[:, phase] -= part
        left -= part
    taken = off - left
    queued = np.minimum(off_cpu[:, 1], taken)
    times[:, P["contention"]] += queued
    times[:, P["launch_gap"]] += taken - queued
    return times


def _part(whole: Ints, share: NDArray[np.float64]) -> Ints:
    return np.minimum(np.rint(whole * share).astype(np.int64), whole)


def _move(times: Ints, source: int, target: int, amount: Ints) -> None:
    times[:, source] -= amount
    times[:, target] += amount
