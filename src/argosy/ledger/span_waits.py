"""Waiting in evaluations, saves and start-up phases, by comparing the same span over ranks."""

from collections.abc import Sequence

from argosy.journal.phys import comm
from argosy.ledger.attempts import Source
from argosy.ledger.exposed import CHANNELS, Division


def divide_span_waits(
    ranks: Sequence[Source], world: int
) -> tuple[dict[int, Division], dict[tuple[int | None, str], int]]:
    """Evaluations, saves and start-up phases: the n-th of a name on one rank is the n-th on all."""
    least: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    keys: dict[int, list[tuple[str, int]]] = {}
    for source in ranks:
        spans, rank = source.file.spans, source.file.rank or 0
        order: dict[str, int] = {}
        nth: dict[int, tuple[str, int]] = {}
        for row in range(len(spans)):
            name = spans.names[spans.phys[row]]
            nth[row] = name, order.get(name, 0)
            order[name] = order.get(name, 0) + 1
        keys[rank] = [nth[int(row)] for row in spans.nested_rows]
        for line, key in enumerate(keys[rank]):
            for column, channel in enumerate(CHANNELS):
                least.setdefault((*key, column), []).append((_nested(source, line, comm(channel)), rank))
    divisions: dict[int, Division] = {}
    waited: dict[tuple[int | None, str], int] = {}
    for source in ranks:
        rank = source.file.rank or 0
        lines = keys[rank]
        division = Division.of_nothing(len(lines))
        for line, key in enumerate(lines):
            for column, channel in enumerate(CHANNELS):
                mine = _nested(source, line, comm(channel))
                everybody = least[(*key, column)]
                if not mine:
                    continue
                if len(everybody) < world:
                    division.untold[line, column] = 1.0  # one that was killed in it, or has no nested phase
                    continue
                common, last = min(everybody)
                division.wait[line, column] = (mine - common) / mine
                if channel != "pp":
                    waited[last, key[0]] = waited.get((last, key[0]), 0) + mine - common
        divisions[rank] = division
    return divisions, waited


def _nested(source: Source, line: int, name: str) -> int:
    names, nested = source.file.phys, source.file.spans.nested
    position = names.index(name) if name in names else nested.shape[1]
    return int(nested[line, position]) if position < nested.shape[1] else 0
