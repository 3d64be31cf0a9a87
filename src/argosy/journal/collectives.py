"""The collectives of a sampled step, packed into one record and unpacked again.

A `colls` record lists each different call once (`c`: axis, operation, group, bytes, [source, target] of a transfer
between two ranks or [root, null]) and then, for each call in order, which of them it was (`i`), its number in the
group (`n`), and its stamps as differences: `d` issued, since the call before was issued; `x` the wait for it began,
since it was issued; `e` it was done, since the wait for it began. `t` is when the first was issued.
Journals of version 1 have one `coll` record per call instead; :func:`calls` reads both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

CALL_BYTES = 30
"""Of one call in a record, about."""


@dataclass(slots=True)
class Call:
    """One collective as one rank saw it; stamps on its host's monotonic clock in ns."""

    step: int
    axis: str
    operation: str
    group: str
    number: int
    """In its group; of a transfer between two ranks, between these two."""
    nbytes: int
    issued_ns: int
    waited_ns: int = 0
    """When the wait for it began."""
    done_ns: int = 0
    source: int | None = None
    """Rank in the group that sends, or the root; None where all take the same part."""
    target: int | None = None
    """Rank in the group that receives; None unless it is a transfer between two."""


def pack(step: int, made: Sequence[Call]) -> dict[str, Any]:
    """The fields of a `colls` record."""
    kinds: dict[tuple[Any, ...], int] = {}
    index = [kinds.setdefault((c.axis, c.operation, c.group, c.nbytes, c.source, c.target), len(kinds)) for c in made]
    issued = [c.issued_ns for c in made]
    return {
        "s": step,
        "t": issued[0],
        "c": [[*kind[:4], *([list(kind[4:])] if kind[4] is not None else [])] for kind in kinds],
        "i": index,
        "n": [c.number for c in made],
        "d": [0, *(b - a for a, b in pairwise(issued))],
        "x": [c.waited_ns - c.issued_ns for c in made],
        "e": [c.done_ns - c.waited_ns for c in made],
    }


def calls(events: Sequence[dict[str, Any]]) -> Iterator[Call]:
    """The calls in a file's events, in order; records that are not whole are passed over."""
    for row in events:
        try:
            if row.get("k") == "colls":
                found = list(_unpack(row))
            elif row.get("k") == "coll":
                found = [
                    Call(row["s"], row["ax"], row["op"], row["g"], row["n"], row["b"], row["t0"], row["x"], row["t1"])
                ]
            else:
                continue
        except (KeyError, TypeError, ValueError, IndexError):
            continue
        if all(map(_is_sound, found)):
            yield from found


def _is_sound(call: Call) -> bool:
    """Whether every field is of its type."""
    numbers = (call.step, call.number, call.nbytes, call.issued_ns, call.waited_ns, call.done_ns)
    return (
        all(type(number) is int for number in numbers)
        and all(type(name) is str for name in (call.axis, call.operation, call.group))
        and all(end is None or type(end) is int for end in (call.source, call.target))
    )


def _unpack(row: dict[str, Any]) -> Iterator[Call]:
    begins = accumulate(row["d"], initial=row["t"])
    next(begins)
    for kind, number, issued, x, e in zip(row["i"], row["n"], begins, row["x"], row["e"], strict=True):
        axis, operation, group, nbytes, *ends = row["c"][kind]
        source, target = ends[0] if ends else (None, None)
        yield Call(row["s"], axis, operation, group, number, nbytes, issued, issued + x, issued + x + e, source, target)
