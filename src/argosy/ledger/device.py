"""What devices did in the math phases that hosts declared, from the profiles of sampled steps.

A `device` record divides each phase of one step among what the device did in it. That step is divided by its own
record; the steps after it by the pooled shares of the last :data:`POOL` profiles of the same rank, which is an
estimate and marked so. Profiles that come later change nothing that was once booked, except that the first one also
divides the steps before it. A share never replaces a total: it only divides the time that the rank measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.journal.reader import JournalFile
from argosy.ledger.accounts import PHYS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
P = {name: index for index, name in enumerate(PHYS)}
POOL = 5


@dataclass
class Profiles:
    """The profiles of one file, in order."""

    rows: Ints
    """Rows of the file's steps that were profiled."""
    parts: list[dict[tuple[int, int], int]]
    """(phase, what the device did) → ns, as indices into PHYS."""

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, file: JournalFile) -> "Profiles":
        rows, parts = [], []
        for record in file.of_kind("device"):
            row = int(np.searchsorted(file.steps.t1, record.get("t", 0), "left"))
            if row >= len(file.steps) or file.steps.step[row] != record.get("s"):
                continue  # the step did not come to its end
            if found := _parts(record):
                rows.append(row)
                parts.append(found)
        return cls(np.array(rows, np.int64), parts)

    def divide(self, times: Ints) -> tuple[Ints, Ints]:
        """Divide `times` [steps, PHYS]; what of the result is an estimate has the same shape."""
        estimated = np.zeros_like(times)
        if not len(self):
            return times, estimated
        times = times.copy()
        last = np.maximum(np.searchsorted(self.rows, np.arange(len(times)), "right") - 1, 0)
        for number in range(len(self)):
            mine = np.flatnonzero(last == number)
            others = mine[mine != self.rows[number]]
            _move(times, self.rows[number : number + 1], _shares([self.parts[number]]), None)
            _move(times, others, _shares(self.parts[max(0, number + 1 - POOL) : number + 1]), estimated)
        return times, estimated


Shares = dict[int, dict[int, float]]


def _parts(record: Mapping[str, object]) -> dict[tuple[int, int], int]:
    """The division in a record, or nothing if it is none."""
    found: dict[tuple[int, int], int] = {}
    listed = record.get("m")
    for part in listed if isinstance(listed, list) else ():
        match part:
            case [str(phase), str(did), int(ns)] if ns >= 0 and phase in P:
                pair = P[phase], P.get(did, P["unmapped"])
                found[pair] = found.get(pair, 0) + ns
            case _:
                return {}
    return found


def _shares(parts: Sequence[dict[tuple[int, int], int]]) -> Shares:
    """Phase → what the device did → share of it, pooled over profiles."""
    pooled: dict[int, dict[int, int]] = {}
    for division in parts:
        for (phase, did), ns in division.items():
            cell = pooled.setdefault(phase, {})
            cell[did] = cell.get(did, 0) + ns
    return {
        phase: {did: ns / total for did, ns in cell.items()}
        for phase, cell in pooled.items()
        if (total := sum(cell.values()))
    }


def _move(times: Ints, rows: Ints, shares: Shares, estimated: Ints | None) -> None:
    """Divide the phases of `rows` by `shares`; each part is rounded down, so the phase keeps what is left."""
    before = times[rows]
    for phase, cell in shares.items():
        whole = before[:, phase]
        for did, share in cell.items():
            if did != phase:
                part = (whole * share).astype(np.int64)
                times[rows, phase] -= part
                times[rows, did] += part
                if estimated is not None:
                    estimated[rows, did] += part
