"""What one rank of a layout holds and sends in a step: exact counts, no prediction.

Parameters, gradients, optimizer state and collectives follow from the shapes of the decoder's weights and from the
rules of the translator: FSDP2 groups one block at a time and pads each weight to equal shards along its first dim;
tensor parallelism splits queries, keys, values and the MLP's inner width by rows, the two output projections by
columns, embedding and output layer by vocabulary, and leaves norms whole. What depends on an allocator or on time
is not here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from argosy.layout.action import Kind
from argosy.layout.layout import Axis, Layout
from argosy.layout.schedule import Schedule
from argosy.layout.stages import rank_stages, stage_blocks
from argosy.recipe.schema import ModelTable

FP32 = 4
SPLIT_ROWS = ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up")
SPLIT_COLUMNS = ("attention.o", "mlp.down")

Op = Literal["all_gather", "reduce_scatter", "all_reduce", "send"]


@dataclass(frozen=True)
class Weight:
    """A parameter tensor as one rank holds it before FSDP shards it: `rows` × `columns` elements."""

    name: str
    rows: int
    columns: int = 1

    @property
    def size(self) -> int:
        return self.rows * self.columns


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


@dataclass(frozen=True)
class Inventory:
    """Of one rank."""

    rank: int
    coordinates: dict[Axis, int]
    blocks: tuple[int, ...]
    """Indices of the blocks on this rank's stages."""
    parameters: int
    """Elements that this rank keeps, after all sharding (without FSDP's padding)."""
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    collectives: tuple[Collective, ...]

    def by_axis(self) -> dict[Axis, int]:
        """Bytes per step on each axis."""
        out: dict[Axis, int] = {}
        for c in self.collectives:
            out[c.axis] = out.get(c.axis, 0) + c.total_bytes
        return out


def block_weights(model: ModelTable, tp: int = 1) -> list[Weight]:
    """The weights of one block on a tensor-parallel rank; `tp` divides heads and inner width."""
    assert model.kv_heads is not None
    assert model.head_dim is not None
    hidden, ffn = model.hidden_size, model.ffn_size
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    shapes = [("attention.q", queries, hidden), ("attention.k", keys, hidden), ("attention.v", keys, hidden),
              ("attention.o", hidden, queries)]  # fmt: skip
    mlp = [("mlp.gate", ffn, hidden)] if model.activation == "swiglu" else []
    mlp += [("mlp.up", ffn, hidden), ("mlp.down", hidden, ffn)]
    return [*_norm(model, "attention_norm"), *_linears(model, shapes, tp), *_head_norms(model),
            *_norm(model, "mlp_norm"), *_linears(model, mlp, tp)]  # fmt: skip


def edge_weights(
    model: ModelTable, vocab_size: int, tp: int = 1, *, first: bool = True, last: bool = True
) -> list[Weight]:
    """Weights outside the blocks on a rank with the `first` or `last` stage; tied embeddings are on both."""
    rows = -(-vocab_size // tp)  # padded, so that every rank has as many
    out = []
    if first or (last and model.tied_embeddings):
        out.append(Weight("embedding", rows, model.hidden_size))
    if first and model.positions == "learned":
        out.append(Weight("positions", model.max_positions, model.hidden_size))
    if last:
        out += _norm(model, "norm")
        if not model.tied_embeddings:
            out.append(Weight("head", rows, model.hidden_size))
    return out


def inventory(
    model: ModelTable,
    vocab_size: int,
    layout: Layout,
    *,
    batch_sequences: int,
    sequence_length: int,
    compute_bytes: int = 2,
    reduce_bytes: int = FP32,
    optimizer_states: int = 2,
    clip: bool = True,
    schedule: Schedule | None = None,
    rank: int = 0,
) -> Inventory:
    """What `rank` holds and sends in one step.

    `compute_bytes`, `reduce_bytes`: size of a number in products and in gradient sums; weights, accumulated gradients
    and the `optimizer_states` per weight are fp32. `schedule` (needed with pp > 1) tells the stage transfers.
    """
    here = layout.coordinates(rank)
    stages = rank_stages(layout, here["pp"])
    blocks = [stage_blocks(layout, model.layers)[stage] for stage in stages]
    first, last = 0 in stages, layout.stages - 1 in stages
    # FSDP2 gathers and reduces a block at a time, and all that is outside the blocks together
    units = [block_weights(model, layout.tp) for stage in blocks for _ in stage]
    if edges := edge_weights(model, vocab_size, layout.tp, first=first, last=last):
        units.append(edges)
    shards = layout.fsdp if layout.zero else 1
    sharded = layout.zero >= 2
    whole = sum(weight.size for unit in units for weight in unit)
    mine = sum(_shard(weight, shards, here["fsdp"]) for unit in units for weight in unit)
    micro_batches = _micro_batches(layout, batch_sequences)
    local = mine if sharded else whole
    collectives = [
        *_data_parallel(layout, units, shards, micro_batches, compute_bytes, reduce_bytes, clip),
        *_model_parallel(layout, model, vocab_size, sum(map(len, blocks)), first, last, micro_batches, batch_sequences,
                         sequence_length, compute_bytes, schedule, here["pp"], clip),
    ]  # fmt: skip
    return Inventory(
        rank=rank,
        coordinates=here,
        blocks=tuple(block for stage in blocks for block in stage),
        parameters=local,
        parameter_bytes=FP32 * local,
        gradient_bytes=FP32 * local,
        optimizer_bytes=FP32 * optimizer_states * mine,
        collectives=tuple(c for c in collectives if c.count),
    )


def _micro_batches(layout: Layout, batch_sequences: int) -> int:
    share = batch_sequences // layout.data_ranks
    return share // (layout.micro_batch_sequences or share)


def _shard(weight: Weight, shards: int, index: int) -> int:
    """Elements of `weight` on shard `index`: rows in chunks of ceil(rows / shards), as torch.chunk cuts them."""
    chunk = -(-weight.rows // shards)
    rows = max(0, min(chunk, weight.rows - index * chunk))
    return rows * weight.columns


def _padded(unit: list[Weight], shards: int) -> int:
    """Elements of all shards of a unit together, each weight padded to equal chunks."""
    return sum(-(-weight.rows // shards) * shards * weight.columns for weight in unit)


def _data_parallel(
    layout: Layout,
    units: list[list[Weight]],
    shards: int,
    micro_batches: int,
    compute_bytes: int,
    reduce_bytes: int,
    clip: bool,
) -> Iterator[Collective]:
    if shards == 1:
        if layout.dp > 1:
            yield Collective("dp", "all_reduce", 1, reduce_bytes * sum(w.size for u in units for w in u), "gradients")
        return
    kinds: dict[int, int] = {}
    edge = _padded(units[-1], shards)
    for unit in units[:-1]:
        kinds[_padded(unit, shards)] = kinds.get(_padded(unit, shards), 0) + 1
    # Gathered for each forward; blocks that were freed after it again for the backward. ZeRO-1 and 2 gather once.
    gathers = micro_batches * (2 if layout.zero == 3 else 1)
    for size, count in kinds.items():
        yield Collective("fsdp", "all_gather", count * gathers, compute_bytes * size, "weights of a block")
        yield Collective("fsdp", "reduce_scatter", count, reduce_bytes * size, "gradients of a block")
        if layout.dp > 1:
            yield Collective("dp", "all_reduce", count, reduce_bytes * size // shards, "shard of a block's gradients")
    yield Collective("fsdp", "all_gather", micro_batches, compute_bytes * edge, "weights outside the blocks")
    yield Collective("fsdp", "reduce_scatter", 1, reduce_bytes * edge, "gradients outside the blocks")
    if layout.dp > 1:
        yield Collective(
            "dp", "all_reduce", 1, reduce_bytes * edge // shards, "shard of the gradients outside the blocks"
        )
    if clip:
        yield Collective("fsdp", "all_reduce", 1, FP32, "gradient norm")


def _model_parallel(
    layout: Layout,
    model: ModelTable,
    vocab_size: int,
    blocks: int,
    first: bool,
    last: bool,
    micro_batches: int,
    batch_sequences: int,
    sequence_length: int,
    compute_bytes: int,
    schedule: Schedule | None,
    pipeline_rank: int,
    clip: bool,
) -> Iterator[Collective]:
    assert model.kv_heads is not None
    assert model.head_dim is not None
    sequences = batch_sequences // layout.data_ranks // micro_batches
    table_size = -(-vocab_size // layout.tp) * model.hidden_size
    tokens = sequences * sequence_length // layout.cp
    activation = tokens * model.hidden_size * compute_bytes
    passes = 2 + (layout.recompute == "full")
    if layout.tp > 1:
        # Per pass: gathered before attention and MLP, scattered after each; backwards the other way round
        yield Collective("tp", "all_gather", 2 * passes * blocks * micro_batches, activation, "activations")
        yield Collective("tp", "reduce_scatter", 2 * passes * blocks * micro_batches, activation, "activations")
        if first:
            yield Collective("tp", "reduce_scatter", micro_batches, activation, "embedding")
            yield Collective("tp", "all_gather", micro_batches, activation, "embedding's gradient")
        if last:
            yield Collective("tp", "all_gather", micro_batches, activation, "input of the output layer")
            yield Collective("tp", "reduce_scatter", micro_batches, activation, "its gradient")
            yield Collective("tp", "all_reduce", 3 * micro_batches, FP32 * tokens, "largest logit, sum, target")
        if clip:
            yield Collective("tp", "all_reduce", 1, FP32, "gradient norm")
    if layout.cp > 1:
        keys = (
            2 * sequences * sequence_length // layout.cp * model.kv_heads * model.head_dim // layout.tp * compute_bytes
        )
        # Forward passes on keys and values, the backward also their gradients
        yield Collective("cp", "send", (layout.cp - 1) * (passes + 1) * blocks * micro_batches, keys, "keys and values")
    if layout.pp > 1:
        if schedule is None:
            raise ValueError("a pipeline's transfers need its schedule")
        sends = sum(action.kind in (Kind.SEND_F, Kind.SEND_B) for action in schedule.ranks[pipeline_rank])
        yield Collective("pp", "send", sends, activation // layout.tp, "activations and gradients of a stage")
        if model.tied_embeddings and (first or last):
            yield Collective("pp", "all_reduce", 1, FP32 * table_size, "tied embedding's gradient")
        if clip:
            yield Collective("pp", "all_reduce", 1, FP32, "gradient norm")


def _norm(model: ModelTable, name: str) -> list[Weight]:
    weight = [Weight(f"{name}.weight", model.hidden_size)]
    return [*weight, Weight(f"{name}.bias", model.hidden_size)] if model.norm == "layernorm" else weight


def _head_norms(model: ModelTable) -> list[Weight]:
    assert model.head_dim is not None
    return [Weight(f"attention.{n}_norm.weight", model.head_dim) for n in ("q", "k")] if model.qk_norm else []


def _linears(model: ModelTable, shapes: list[tuple[str, int, int]], tp: int) -> list[Weight]:
    out = []
    for name, rows, columns in shapes:
        weight = Weight(f"{name}.weight", rows, columns)
        if name in SPLIT_ROWS:
            weight = replace(weight, rows=rows // tp)
        elif name in SPLIT_COLUMNS:
            weight = replace(weight, columns=columns // tp)
        out.append(weight)
        if model.bias == "all" or (model.bias == "qkv" and name in SPLIT_ROWS[:3]):
            out.append(Weight(f"{name}.bias", rows // tp if name in SPLIT_ROWS else rows))
    return out
