"""Memory of each rank: its peak, what is known to be in it, and whether it grows.

A leak shows as growth long after the first steps, when everything that is allocated once has been. So the first
quarter of the samples is left out, and what is left must grow nearly always and by more than noise would.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from argosy.journal.reader import JournalFile

LEAST_SAMPLES = 8
GROWTH = 0.02
"""Growth over the later samples, as a share of what was there, from which it is an alert..."""
STEADY = 0.75
"""...if it went up in this share of the steps between samples (Mann and Kendall's sign, coarsely)."""
FRAGMENTED = 0.3
"""Share of reserved device memory that nothing uses, from which it is an alert."""


@dataclass(frozen=True)
class MemoryRow:
    """One rank in one attempt, bytes. Unknown is None."""

    attempt: int
    rank: int
    peak: int
    """Of the device; of the process where the host is the device."""
    parameters: int | None
    gradients: int | None
    optimizer: int | None
    other: int | None
    """Peak less what is known: activations, buffers, the interpreter."""
    growth_per_step: float | None
    """Bytes per step over the later samples."""
    retries: int | None
    """Allocations that had to free cached memory first."""
    fragmentation: float | None
    """Share of reserved device memory that was not allocated."""
    alert: str | None


def memory_rows(files: Iterable[JournalFile]) -> list[MemoryRow]:
    """One row for each rank that wrote memory records, by attempt and rank."""
    rows = [row for file in files if (row := _row(file)) is not None]
    return sorted(rows, key=lambda row: (row.attempt, row.rank))


def _row(file: JournalFile) -> MemoryRow | None:
    records = [record for record in file.of_kind("memory") if isinstance(record.get("rss"), int)]
    if not records or file.rank is None:
        return None
    last = records[-1]
    on_device = isinstance(last.get("reserved"), int)
    used = "allocated" if on_device else "rss"
    peak = max(_int(record, "peak" if on_device else "peak_rss") or record["rss"] for record in records)
    known = [_int(last, key) for key in ("parameters", "gradients", "optimizer")]
    stated = [value for value in known if value is not None]
    growth, share = _growth([(record["s"], record[used]) for record in records if used in record and "s" in record])
    reserved = _int(last, "reserved") or 0
    fragmentation = 1 - last["allocated"] / reserved if on_device and reserved else None
    retries = _int(last, "retries")
    alert = None
    if share is not None:
        alert = f"grows by {share:.0%} after the first quarter, {growth:,.0f} bytes a step: something is kept"
    elif fragmentation is not None and fragmentation > FRAGMENTED:
        alert = f"{fragmentation:.0%} of the reserved memory is not in use: fragmentation"
    elif retries:
        alert = f"{retries} allocations had to free cached memory first"
    parameters, gradients, optimizer = known
    return MemoryRow(
        attempt=file.attempt,
        rank=file.rank,
        peak=peak,
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        other=peak - sum(stated) if stated else None,
        growth_per_step=growth,
        retries=retries,
        fragmentation=fragmentation,
        alert=alert,
    )


def _growth(samples: list[tuple[int, int]]) -> tuple[float | None, float | None]:
    """Bytes per step over the later samples (median of all slopes, Theil and Sen), and their share if it is a leak."""
    later = samples[len(samples) // 4 :]
    if len(later) < LEAST_SAMPLES:
        return None, None
    steps, used = np.array(later, np.float64).T
    i, j = np.triu_indices(len(later), 1)
    apart = steps[j] > steps[i]
    if not apart.any():
        return None, None
    slopes = (used[j] - used[i])[apart] / (steps[j] - steps[i])[apart]
    slope = float(np.median(slopes))
    share = slope * (steps[-1] - steps[0]) / used[0]
    leaks = share > GROWTH and float((slopes > 0).mean()) > STEADY
    return slope, share if leaks else None


def _int(record: Mapping[str, Any], key: str) -> int | None:
    value = record.get(key)
    return value if type(value) is int else None
