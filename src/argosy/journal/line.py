"""The phases of a sampled step in the order in which they came, small enough for a record.

A `line` record has the begin `t` of the first phase, and for each stretch its phase `p` (position in the header's
`phys`; one beyond the last is time between declared phases) and its length `d` in ns. Stretches touch. What the
recorder spends on itself between two phases, less than a microsecond, is counted with the phase before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from argosy.journal.schema import LINE_BYTES

Line = list[tuple[int, int, int]]

STRETCH_BYTES = 12
MOST = LINE_BYTES // STRETCH_BYTES
"""Stretches of a record; of a step with more, the shortest become part of the one before."""


@dataclass(frozen=True)
class Stretch:
    """One phase from `t0_ns` until `t1_ns` on the host's monotonic clock; `phys` is None between declared phases."""

    phys: str | None
    t0_ns: int
    t1_ns: int


def pack_line(step: int, line: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
    """The fields of a `line` record; `line` is (phase, begin, end) in order, with gaps of next to nothing."""
    merged = _merged(line, 0)
    if len(merged) > MOST:
        shortest_first = sorted(end - begin for _, begin, end in merged)
        merged = _merged(merged, shortest_first[len(merged) - MOST])
    begins = [begin for _, begin, _ in merged]
    ends = [*begins[1:], merged[-1][2]]
    lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
    return {"s": step, "t": begins[0], "p": [phys for phys, _, _ in merged], "d": lengths}


def lines(events: Sequence[dict[str, Any]], names: Sequence[str]) -> Iterator[tuple[int, list[Stretch]]]:
    """(step, its stretches) of each line record in a file's events; `names` are the header's `phys`."""
    for row in events:
        if row.get("k") != "line":
            continue
        try:
            at, found = int(row["t"]), []
            for phys, length in zip(row["p"], row["d"], strict=True):
                found.append(Stretch(names[phys] if phys < len(names) else None, at, at + length))
                at += length
            yield int(row["s"]), found
        except (KeyError, TypeError, ValueError):
            continue  # of a damaged or a later journal


def _merged(line: Sequence[tuple[int, int, int]], least_ns: int) -> Line:
    """Neighbours of one phase as one stretch; those of at most `least_ns` go into the one before."""
    merged: Line = []
    for phys, begin, end in line:
        if merged and (merged[-1][0] == phys or end - begin <= least_ns):
            merged[-1] = (merged[-1][0], merged[-1][1], end)
        else:
            merged.append((phys, begin, end))
    return merged
