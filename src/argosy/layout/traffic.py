"""Every collective of one rank in one step: the translator's rules as counts and bytes.

Compared call by call with what :class:`argosy.parallel.groups.StampedGroup` counts, for all layouts of the
equivalence matrix. What the engine tells other ranks about itself (the control group) is no part of a layout.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from argosy.layout.action import Kind
from argosy.layout.layout import Axis
from argosy.layout.stages import rank_stages
from argosy.layout.weights import StageWeights, Weight, parameters_of
from argosy.layout.work import Work

FP32 = 4
LOGITS = {"cpu": 1 << 19, "cuda": 1 << 27}
"""Logits that the loss holds at once, by device."""
LEAST_ROWS = 128
"""Tokens of a chunk of the loss at least."""

Op = Literal["all_gather", "reduce_scatter", "all_reduce", "send"]


@dataclass(frozen=True)
class Collective:
    """One kind of transfer of a rank: `count` times per step, each of `bytes` (the whole tensor of the group)."""

    axis: Axis
    op: Op
    count: int
    bytes: int
    what: str

    @property
    def total_bytes(self) -> int:
        return self.count * self.bytes


def traffic(work: Work, stages: list[StageWeights], rank: int, recomputed: int) -> list[Collective]:
    """All that `rank` sends and gathers in a step. `stages` are its weights, `recomputed` how many of its blocks are
    computed again in backward. Receives are the other ends of sends and not listed."""
    found = [*_data(work, stages, rank), *_tensor(work, stages, rank, recomputed), *_context(work, stages, recomputed),
             *_pipeline(work, stages, rank), *_norm(work, stages)]  # fmt: skip
    return [c for c in found if c.count]


def _data(work: Work, stages: list[StageWeights], rank: int) -> Iterator[Collective]:
    """Weights and gradients over fsdp and dp."""
    layout = work.layout
    if layout.fsdp == 1:
        if layout.dp > 1:
            size = sum(weight.size for weight in parameters_of(stages))
            yield Collective("dp", "all_reduce", 1, work.reduce_bytes * size, "gradients")
        return
    if layout.zero == 1:
        yield from _optimizer_shards(work, stages)
        return
    # Gathered for each forward; blocks that were freed after it again for the backward. In a pipeline they stay.
    once = 1 if layout.pp > 1 else work.micro_batches
    again = 2 if layout.reshard_after_forward and layout.pp == 1 else 1
    for name, units, gathers in (
        ("of a block", [block for stage in stages for block in stage.blocks], once * again),
        ("outside the blocks", [stage.edge for stage in stages if stage.edge], once),
    ):
        sizes = [sum(weight.padded(layout.fsdp) for weight in unit) for unit in units]
        for size in dict.fromkeys(sizes):
            count = sizes.count(size)
            yield Collective("fsdp", "all_gather", count * gathers, work.compute_bytes * size, f"weights {name}")
            yield Collective("fsdp", "reduce_scatter", count, work.reduce_bytes * size, f"gradients {name}")
            if layout.dp > 1:
                shard = work.reduce_bytes * size // layout.fsdp
                yield Collective("dp", "all_reduce", count, shard, f"shard of gradients {name}")


def _optimizer_shards(work: Work, stages: list[StageWeights]) -> Iterator[Collective]:
    """ZeRO-1: gradients are summed to the ranks that update them, and updated weights come back."""
    size = sum(weight.padded(work.layout.fsdp) for weight in parameters_of(stages))
    yield Collective("fsdp", "reduce_scatter", 1, work.reduce_bytes * size, "gradients")
    if work.layout.dp > 1:
        shard = work.reduce_bytes * size // work.layout.fsdp
        yield Collective("dp", "all_reduce", 1, shard, "shard of the gradients")
    yield Collective("fsdp", "all_gather", 1, FP32 * size, "updated weights")


def _tensor(work: Work, stages: list[StageWeights], rank: int, recomputed: int) -> Iterator[Collective]:
    """Activations over tp, statistics of the loss, and gradients of the weights that are whole on every rank."""
    layout = work.layout
    if layout.tp == 1:
        return
    here = layout.coordinates(rank)
    numbers = rank_stages(layout, here["pp"])
    blocks = sum(len(stage.blocks) for stage in stages)
    m, stream = work.micro_batches, work.stream_bytes
    # Gathered before attention and MLP, scattered after each; backwards the other way round. A recomputation ends
    # with the last thing that the backward reads, before the last scatter.
    yield Collective("tp", "all_gather", m * (4 * blocks + 2 * recomputed), stream, "activations")
    yield Collective("tp", "reduce_scatter", m * (4 * blocks + recomputed), stream, "activations")
    if 0 in numbers:
        yield Collective("tp", "reduce_scatter", m, stream, "embedding")
        yield Collective("tp", "all_gather", m, stream, "embedding's gradient")
    if layout.stages - 1 in numbers:
        yield Collective("tp", "all_gather", m, stream, "input of the output layer")
        yield Collective("tp", "reduce_scatter", m, stream, "its gradient")
        rows = max(LEAST_ROWS, LOGITS[work.device] // -(-work.vocab_size // layout.tp))
        full, rest = divmod(work.tokens, rows)
        statistic = layout.tp * 3 * FP32
        yield Collective("tp", "all_gather", m * full, statistic * rows, "statistics of the loss")
        yield Collective("tp", "all_gather", m * (rest > 0), statistic * rest, "statistics of the loss, last chunk")
    whole = sum(_shard(work, weight, here["fsdp"]) for weight in parameters_of(stages) if weight.whole)
    yield Collective("tp", "all_reduce", 1, FP32 * whole, "gradients of norms and biases")


def _context(work: Work, stages: list[StageWeights], recomputed: int) -> Iterator[Collective]:
    """Keys and values around the ring of cp: forward passes them on, backward also their gradients."""
    model, layout = work.model, work.layout
    assert model.kv_heads is not None
    assert model.head_dim is not None
    if layout.cp > 1:
        blocks = sum(len(stage.blocks) for stage in stages)
        keys = 2 * work.tokens * model.kv_heads * model.head_dim // layout.tp * work.compute_bytes
        rounds = (layout.cp - 1) * (3 * blocks + recomputed) * work.micro_batches
        yield Collective("cp", "send", rounds, keys, "keys and values")


def _pipeline(work: Work, stages: list[StageWeights], rank: int) -> Iterator[Collective]:
    """Hidden states and their gradients over pp, and gradients of tied embeddings between first and last rank."""
    layout, schedule = work.layout, work.schedule
    if schedule is None:
        return
    here = layout.coordinates(rank)
    sends = sum(action.kind in (Kind.SEND_F, Kind.SEND_B) for action in schedule.ranks[here["pp"]])
    yield Collective("pp", "send", sends, work.stream_bytes // layout.tp, "activations and gradients of a stage")
    owner = schedule.stage_rank()
    ends = {owner[0], owner[layout.stages - 1]}
    if work.model.tied_embeddings and len(ends) == 2 and here["pp"] in ends:
        (table,) = (weight for weight in parameters_of(stages) if weight.name == "embedding")
        size = _shard(work, table, here["fsdp"])
        yield Collective("pp", "send", 1, FP32 * size, "tied embedding's gradient")


def _norm(work: Work, stages: list[StageWeights]) -> Iterator[Collective]:
    """Each axis that splits weights sums one number for each different set of such axes, a pipeline one for all."""
    layout = work.layout
    split: list[tuple[Axis, bool]] = [("tp", layout.tp > 1), ("fsdp", layout.fsdp > 1)]
    sets = {
        frozenset(axis for axis, does in split if does and not (axis == "tp" and weight.whole))
        for weight in parameters_of(stages)
    }
    for axis, _ in split:
        numbers = sum(axis in one for one in sets)
        yield Collective(axis, "all_reduce", int(numbers > 0), FP32 * numbers, "gradient norm")
    yield Collective("pp", "all_reduce", int(layout.pp > 1), FP32, "gradient norm")


def _shard(work: Work, weight: Weight, index: int) -> int:
    """Elements of a gradient that a rank holds once it is summed over fsdp."""
    return weight.shard(work.layout.fsdp, index) if work.layout.zero else weight.size
