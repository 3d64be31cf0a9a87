"""What pictures of ranks need: own time over the steps, and one sampled step in the order of its phases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from argosy.journal.line import lines
from argosy.ledger.attempts import Source
from argosy.ledger.compact import Compact

COLUMNS, ROWS = 60, 64
STEP_RANKS = 16
FINEST = 1 / 2000
"""Share of a step below which a phase is not drawn by itself."""


@dataclass(frozen=True)
class HeatMap:
    """Own time of each rank over the steps of one attempt: without waits and transfers, which all ranks share."""

    attempt: int
    rows: list[str]
    """Ranks, or hosts where there are too many ranks: then each value is its slowest rank's."""
    steps: list[int]
    """First step of each column."""
    values_s: list[list[float]]
    """[rows][columns] median own time of a step."""


@dataclass(frozen=True)
class Phase:
    name: str
    """As the rank declared it."""
    t0_ns: int
    """Since the step began on the first rank to begin it."""
    t1_ns: int


@dataclass(frozen=True)
class StepPicture:
    """One sampled step."""

    attempt: int
    step: int
    length_ns: int
    ranks: list[tuple[int, list[Phase]]]


def heat_map(ranks: Sequence[Source]) -> HeatMap | None:
    """Of the newest attempt that took a step."""
    stepped = [source for source in ranks if len(source.file.steps)]
    if not stepped:
        return None
    attempt = stepped[-1].file.attempt
    mine = sorted((s for s in stepped if s.file.attempt == attempt), key=lambda s: s.file.rank or 0)
    longest = max((source.file.steps for source in mine), key=len)
    parts = np.array_split(np.arange(len(longest)), min(COLUMNS, len(longest)))
    by_row: dict[str, list[list[float]]] = {}
    for source in mine:
        name = f"rank {source.file.rank}" if len(mine) <= ROWS else source.file.header["host"]
        own = _own_s(source)
        by_row.setdefault(name, []).append(
            [float(np.median(own[part[part < len(own)]])) if (part < len(own)).any() else 0.0 for part in parts]
        )
    return HeatMap(
        attempt=attempt,
        rows=list(by_row),
        steps=[int(longest.step[part[0]]) for part in parts],
        values_s=[[max(column) for column in zip(*values, strict=True)] for values in by_row.values()],
    )


def compact_heat_map(found: Compact, leaders: Mapping[int, Source]) -> HeatMap | None:
    """The same from `compact/`; more ranks than rows are joined in the order of their numbers."""
    attempt = max((number for number, leader in leaders.items() if len(leader.file.steps)), default=None)
    if attempt is None:
        return None
    leader = leaders[attempt].file
    world, columns = int(leader.header["world"]), min(COLUMNS, len(leader.steps))
    rows = min(ROWS, world)
    values = [[0.0] * columns for _ in range(rows)]
    for line, column, own_s in found.own_time(attempt, columns, ROWS):
        values[line][column] = own_s
    first = [-(-line * world // rows) for line in range(rows + 1)]
    names = [f"rank {a}" if b - a == 1 else f"ranks {a} to {b - 1}" for a, b in pairwise(first)]
    steps = [int(leader.steps.step[-(-column * len(leader.steps) // columns)]) for column in range(columns)]
    return HeatMap(attempt, names, steps, values)


def _own_s(source: Source) -> np.ndarray:
    """[steps] what a rank declared, without communication and without what is between phases [s]."""
    amounts = source.file.steps.amounts
    own = [column for column, name in enumerate(source.file.phys[: amounts.shape[1]]) if not name.startswith("comm.")]
    return amounts[:, own].sum(axis=1) / 1e9


def step_picture(ranks: Sequence[Source]) -> StepPicture | None:
    """The last sampled step that all ranks of an attempt have; of a pipeline, the ranks of the first one."""
    for attempt in sorted({source.file.attempt for source in ranks}, reverse=True):
        mine = sorted((s for s in ranks if s.file.attempt == attempt), key=lambda s: s.file.rank or 0)
        drawn = [(source, dict(lines(source.file.events, source.file.phys))) for source in _shown(mine)]
        common = set.intersection(*(set(found) for _, found in drawn)) if drawn else set()
        if not common:
            continue
        step = max(common)
        begin = min(found[step][0].t0_ns + source.offset_ns for source, found in drawn)
        end = max(found[step][-1].t1_ns + source.offset_ns for source, found in drawn)
        rows = [
            (
                source.file.rank or 0,
                [
                    Phase(
                        stretch.phys, stretch.t0_ns + source.offset_ns - begin, stretch.t1_ns + source.offset_ns - begin
                    )
                    for stretch in found[step]
                    if stretch.phys and stretch.t1_ns - stretch.t0_ns >= (end - begin) * FINEST
                ],
            )
            for source, found in drawn
        ]
        return StepPicture(attempt, step, end - begin, rows)
    return None


def _is_outermost(layout: Mapping[str, Any]) -> bool:
    order = layout.get("order") or ["pp"]
    return bool(order[0] == "pp")


def _shown(ranks: Sequence[Source]) -> list[Source]:
    """One rank of each pipeline stage if there are stages, else the first ranks."""
    layout = ranks[0].file.header.get("layout") or {}
    stages = int(layout.get("pp", 1))
    apart = max(1, len(ranks) // stages) if stages > 1 and _is_outermost(layout) else 1
    return list(ranks[::apart][:STEP_RANKS]) if apart > 1 else list(ranks[:STEP_RANKS])
