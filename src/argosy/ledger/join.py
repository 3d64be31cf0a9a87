"""Joins the collectives of sampled steps over ranks: who waited for whom, and how long bytes moved.

A rank's wait for a collective is divided at the moment when the last participant that it depends on had issued its
part: before it there was nothing to move (research/ledger.md 3.5). Which participants those are differs by
operation: a broadcast depends on its root alone.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from argosy.journal.collectives import Call, calls
from argosy.ledger.alignment import Offset, align
from argosy.ledger.attempts import Source
from argosy.ledger.groups import group_of_ranks


@dataclass(slots=True)
class Waited:
    """One rank in one collective. Stamps are on the reference clock of the step [ns]."""

    rank: int
    step: int
    axis: str
    begin_ns: int
    """When this rank began to wait."""
    ready_ns: int
    """When the last one that it depends on had issued its part, within `begin_ns` and `done_ns`."""
    done_ns: int
    culprit: int | None
    """The last one, if it was another rank."""
    told: bool
    """False when a participant's journal is missing, or clocks are too uncertain: time after `ready_ns` may be
    either."""


_Key = tuple[str, int, str, int, int | None, int | None]


def join(ranks: Sequence[Source]) -> tuple[list[Waited], dict[tuple[int, str], Offset]]:
    """The sampled collectives of one attempt; and the offset of each clock in each step, by (step, boot id)."""
    by_step: dict[int, dict[_Key, list[tuple[Source, Call]]]] = defaultdict(lambda: defaultdict(list))
    sizes: dict[str, list[int]] = {}
    for source in ranks:
        rank, world = source.file.rank or 0, source.file.header["world"]
        numbered: dict[str, int] = {}
        for call in calls(source.file.events):
            if call.axis not in numbered:
                groups = group_of_ranks(source.file.header.get("layout") or {}, world, call.axis)
                numbered[call.axis] = -1 if groups is None else int(groups[rank])
                sizes.setdefault(call.axis, [] if groups is None else groups.tolist())
            key = (call.axis, numbered[call.axis], call.group, call.number, call.source, call.target)
            by_step[call.step][key].append((source, call))
    waits: list[Waited] = []
    offsets: dict[tuple[int, str], Offset] = {}
    for step, instances in by_step.items():
        clocks = {source.file.header["boot_id"]: None for made in instances.values() for source, _ in made}
        known = {clock: Offset(0, 0) for clock in clocks}
        if len(clocks) > 1:
            stamped = ([(source.file.header["boot_id"], call) for source, call in made] for made in instances.values())
            known = align(stamped, ranks[0].file.header["boot_id"])
        offsets |= {(step, clock): offset for clock, offset in known.items()}
        for key, made in instances.items():
            axis, group = key[:2]
            expected = 2 if key[5] is not None else sizes[axis].count(group) if group != -1 else len(made)
            waits += _waits(made, known, expected)
    return waits, offsets


def _waits(made: Sequence[tuple[Source, Call]], known: dict[str, Offset], expected: int) -> list[Waited]:
    placed = sorted(
        (
            (source.file.rank or 0, call, known[source.file.header["boot_id"]])
            for source, call in made
            if source.file.header["boot_id"] in known
        ),
        key=lambda row: row[0],
    )
    complete = len(placed) == expected
    issued = [(call.issued_ns + offset.ns, rank, offset.error_ns) for rank, call, offset in placed]
    found = []
    for member, (rank, call, offset) in enumerate(placed):
        begin, done = call.waited_ns + offset.ns, call.done_ns + offset.ns
        needed = [issued[index] for index in _needs(call, member, placed) if index != member]
        ready, culprit, told = begin, None, complete
        if needed and (last := max(needed))[0] > begin:
            ready, culprit = min(last[0], done), last[1]
            told = complete and last[2] + offset.error_ns <= (ready - begin) / 2
        if not told and complete:
            ready, culprit = begin, None  # the wait is shorter than the clocks are uncertain
        found.append(Waited(rank, call.step, call.axis, begin, ready, done, culprit, told))
    return found


def _needs(call: Call, member: int, placed: Sequence[tuple[int, Call, Offset]]) -> Sequence[int]:
    """The participants that `member` cannot be done without."""
    if call.operation in ("broadcast", "scatter"):
        return [call.source] if call.source is not None and call.source < len(placed) else range(len(placed))
    if call.operation in ("reduce", "gather"):
        return range(len(placed)) if member == call.source else [member]
    if call.operation == "send":
        return []
    if call.operation == "recv":
        return [index for index, (_, other, _) in enumerate(placed) if other.operation == "send"]
    return range(len(placed))
