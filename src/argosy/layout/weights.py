"""The weights of a rank, from the shapes of the decoder and the rules of the translator.

Tensor parallelism splits queries, keys, values and the MLP's inner width by rows, the two output projections by
columns, embedding and output layer by rows of the vocabulary, and leaves everything else whole. FSDP2 then takes a
block at a time, and all that is outside of a stage's blocks together; it cuts each weight along its first dim.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from argosy.layout.layout import Layout
from argosy.layout.stages import rank_stages, stage_blocks
from argosy.recipe.model_table import ModelTable

SPLIT_ROWS = ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up")
SPLIT_COLUMNS = ("attention.o", "mlp.down")


@dataclass(frozen=True)
class Weight:
    """A parameter tensor as one rank holds it before FSDP shards it: `rows` × `columns` elements."""

    name: str
    rows: int
    columns: int = 1
    whole: bool = False
    """Whether tensor parallelism leaves it whole on every rank."""

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def states(self, optimizer: str) -> int:
        """Numbers that `optimizer` keeps for each element: two moments, or of Muon's matrices the momentum."""
        if optimizer == "muon":
            return 1 if self.columns > 1 and self.name.startswith(("attention.", "mlp.")) else 2
        return {"adamw": 2, "sgd": 0}[optimizer]

    def shard(self, shards: int, index: int) -> int:
        """Elements of shard `index`: rows in chunks of ceil(rows / shards), as torch.chunk cuts them."""
        return share(self.rows, shards, index) * self.columns

    def padded(self, shards: int) -> int:
        """Elements of all shards together, padded to equal chunks."""
        return -(-self.rows // shards) * shards * self.columns


Unit = tuple[Weight, ...]
"""Weights that FSDP2 gathers and reduces together."""


@dataclass(frozen=True)
class StageWeights:
    """One pipeline stage on one tensor-parallel rank."""

    blocks: tuple[Unit, ...]
    edge: Unit
    """Outside of the blocks; empty on a stage in the middle."""

    @property
    def units(self) -> tuple[Unit, ...]:
        return (*self.blocks, self.edge) if self.edge else self.blocks


def rank_weights(model: ModelTable, vocab_size: int, layout: Layout, rank: int) -> list[StageWeights]:
    """Weights of each stage of `rank`, in the order of the stages."""
    here = layout.coordinates(rank)
    blocks = stage_blocks(layout, model.layers)
    block = tuple(block_weights(model, layout.tp))
    found = []
    for stage in rank_stages(layout, here["pp"]):
        first, last = stage == 0, stage == layout.stages - 1
        edge = edge_weights(model, vocab_size, layout.tp, here["tp"], first=first, last=last)
        found.append(StageWeights((block,) * len(blocks[stage]), tuple(edge)))
    return found


def parameters_of(stages: Iterable[StageWeights]) -> list[Weight]:
    """Every weight that the optimizer of a rank knows: of two tied copies on one rank, the ends of a V, only one."""
    found: list[Weight] = []
    for stage in stages:
        copies = {"embedding"} & {weight.name for weight in found}
        found += [weight for unit in stage.units for weight in unit if weight.name not in copies]
    return found


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
    model: ModelTable, vocab_size: int, tp: int = 1, tp_rank: int = 0, *, first: bool = True, last: bool = True
) -> list[Weight]:
    """Weights outside the blocks on a rank with the `first` or `last` stage; tied embeddings are on both."""
    rows = share(vocab_size, tp, tp_rank)
    out = []
    if first or (last and model.tied_embeddings):
        out.append(Weight("embedding", rows, model.hidden_size))
    if first and model.positions == "learned":
        out.append(Weight("positions", model.max_positions, model.hidden_size, whole=True))
    if last:
        out += _norm(model, "norm")
        if not model.tied_embeddings:
            out.append(Weight("head", rows, model.hidden_size))
    return out


def share(count: int, parts: int, index: int) -> int:
    """How many of `count` things part `index` has, in chunks of ceil(count / parts)."""
    chunk = -(-count // parts)
    return max(0, min(chunk, count - index * chunk))


def _norm(model: ModelTable, name: str) -> list[Weight]:
    parts = ["weight", "bias"] if model.norm == "layernorm" else ["weight"]
    return [Weight(f"{name}.{part}", model.hidden_size, whole=True) for part in parts]


def _head_norms(model: ModelTable) -> list[Weight]:
    assert model.head_dim is not None
    names = ("q", "k") if model.qk_norm else ()
    return [Weight(f"attention.{name}_norm.weight", model.head_dim, whole=True) for name in names]


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
            split = name in SPLIT_ROWS
            out.append(Weight(f"{name}.bias", rows // tp if split else rows, whole=not split))
    return out
