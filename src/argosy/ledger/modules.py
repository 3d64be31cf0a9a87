"""Which layer is the bottleneck: time, FLOPs and share of the peak of each module, from profiled steps.

FLOPs are those of :mod:`argosy.recipe.flops`, for the tokens that one rank computed in a step; time is the mean of
the profiles. Modules whose FLOPs nobody counts (norms, residual sums) have time alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from argosy.journal.reader import JournalFile
from argosy.recipe.flops import forward_flops
from argosy.recipe.schema import Recipe

WHOLE = "model"
"""Name of what is in no module of its own: embedding look-up, head and loss."""


@dataclass(frozen=True)
class ModuleRow:
    """One module of one rank, mean of its profiled steps."""

    name: str
    forward_ns: int
    backward_ns: int
    recompute_ns: int
    idle_ns: int
    """Host in its forward, nothing computed."""
    share: float
    """Of the time of all modules."""
    flops: int | None
    """Forward and backward of one step, recomputation not counted; None: not counted."""
    of_peak: float | None
    """FLOPs ÷ (time × peak of one rank)."""


def module_rows(
    files: Iterable[JournalFile], recipe: Recipe, vocab_size: int | None, peak: float | None
) -> list[ModuleRow]:
    """Rows of all modules over the profiles in `files`, the slowest first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    profiles, tokens = 0, 0.0
    for file in files:
        ranks = max(1, _data_ranks(file.header.get("layout") or {}))
        counted = {int(step): int(row.sum()) for step, row in zip(file.steps.step, file.steps.tokens, strict=True)}
        for record in file.of_kind("device"):
            rows = record.get("b")
            if not isinstance(rows, list) or not rows:
                continue
            profiles += 1
            tokens += counted.get(record.get("s", -1), 0) / ranks
            for row in rows:
                match row:
                    case [str(name), int(), int(), int(), int()]:
                        sums[name] = [a + b for a, b in zip(sums[name], row[1:], strict=True)]
    if not profiles:
        return []
    flops = _flops(recipe, vocab_size)
    whole = sum(map(sum, sums.values())) or 1
    found = []
    for name, (forward, backward, recompute, idle) in sums.items():
        per_token = flops.get(_kind(name))
        step_flops = None if per_token is None else round(per_token * tokens / profiles)
        busy_ns = (forward + backward) / profiles
        of_peak = step_flops / (busy_ns / 1e9 * peak) if step_flops is not None and peak and busy_ns else None
        found.append(
            ModuleRow(
                name=name,
                forward_ns=round(forward / profiles),
                backward_ns=round(backward / profiles),
                recompute_ns=round(recompute / profiles),
                idle_ns=round(idle / profiles),
                share=(forward + backward + recompute + idle) / whole,
                flops=step_flops,
                of_peak=of_peak,
            )
        )
    return sorted(found, key=lambda row: -row.share)


def _data_ranks(layout: Mapping[str, object]) -> int:
    """Ranks that a batch's tokens are divided over: those of data, and those that share a sequence."""
    product = 1
    for axis in ("dp", "fsdp", "cp"):
        size = layout.get(axis, 1)
        product *= size if isinstance(size, int) else 1
    return product


def _flops(recipe: Recipe, vocab_size: int | None) -> dict[str, float]:
    """FLOPs per token, forward and backward, of one module of each kind."""
    if vocab_size is None:
        return {}
    by_part = forward_flops(recipe.model, vocab_size, recipe.data.sequence_length)
    layers = recipe.model.layers
    kinds: dict[str, float] = defaultdict(float)
    for name, flops in by_part.items():
        part = name.partition(".")[0]
        kinds[WHOLE if part == "head" else part] += 3 * flops / (1 if part == "head" else layers)
    return dict(kinds)


def _kind(name: str) -> str:
    """``blocks.3.attention`` → ``attention``."""
    return name.rpartition(".")[2]
