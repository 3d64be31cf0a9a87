"""What autograd keeps from forward to backward, counted from shapes.

Counted is what PyTorch's own operations save with flash attention, as on a GPU; the fused CPU operations of
:mod:`argosy.models.cpu` save less. Not counted are weights (also where they are cast to the compute dtype first) and
what lives only within one operation.

none        everything that a derivative reads
selective   the block's input, and the results of products and attention
full        the block's input
"""

from argosy.layout.action import Kind
from argosy.layout.stages import rank_stages, stage_blocks
from argosy.layout.weights import share
from argosy.layout.work import Work

FP32, INT64 = 4, 8


def block_bytes(work: Work, recompute: str) -> int:
    """Saved bytes of one block for one micro-batch on one rank."""
    model, tp = work.model, work.layout.tp
    assert model.kv_heads is not None
    assert model.head_dim is not None
    number = work.compute_bytes
    piece = work.stream_bytes // tp  # [B, S / tp, hidden]: residual stream and norms
    if recompute == "full":
        return piece
    whole = work.stream_bytes  # [B, S, hidden]: what the products of a block read
    query = work.tokens * model.heads * model.head_dim // tp * number
    key = work.tokens * model.kv_heads * model.head_dim // tp * number
    inner = work.tokens * model.ffn_size // tp * number
    gated = model.activation == "swiglu"
    log_sums = work.tokens * model.heads // tp * FP32
    attention = query + 2 * key + query + log_sums  # queries, keys, values; output, logarithm of the sums
    if recompute == "selective":
        return piece + attention + whole + inner * (2 if gated else 1) + whole  # also what o and down give
    norms = 2 * (piece + work.tokens // tp * FP32 * (2 if model.norm == "layernorm" else 1))
    heads_norms = 0
    if model.qk_norm:
        heads_norms = query + key + work.tokens * (model.heads + model.kv_heads) // tp * FP32
    # silu reads gate, the product both factors, down their product; gelu reads up, down its result
    return norms + 2 * whole + heads_norms + attention + inner * (4 if gated else 2)


def edge_bytes(work: Work, stage: int, tp_rank: int) -> int:
    """Saved bytes of one micro-batch outside of the blocks of `stage`."""
    model, layout = work.model, work.layout
    assert model.head_dim is not None
    piece = work.stream_bytes // layout.tp
    total = 0
    if model.positions == "rope":
        total += 2 * work.sequence_length // layout.cp * model.head_dim * work.compute_bytes  # cosines and sines
    if stage == 0:
        total += work.tokens * (INT64 if layout.tp == 1 else INT64 + work.compute_bytes)  # and which are in the shard
    if stage == layout.stages - 1:
        rows = share(work.vocab_size, layout.tp, tp_rank)
        # The loss keeps its own gradients, of hidden states and of the output layer, in place of logits
        total += piece + work.tokens // layout.tp * FP32 + work.stream_bytes + rows * model.hidden_size * FP32
    else:
        total += piece  # the stage's result
    return total


def recomputed_blocks(work: Work, rank: int) -> frozenset[int]:
    """Blocks of `rank` that are computed again in backward.

    With a budget the first ones, just as many as needed; all where even that is not enough, and without a budget.
    """
    layout = work.layout
    blocks = [block for stage in _blocks(work, rank) for block in stage]
    if layout.recompute == "none":
        return frozenset()
    if layout.recompute_budget_bytes is None:
        return frozenset(blocks)
    for count in range(len(blocks)):
        chosen = frozenset(blocks[:count])
        if peak_bytes(work, rank, chosen) <= layout.recompute_budget_bytes:
            return chosen
    return frozenset(blocks)


def peak_bytes(work: Work, rank: int, recomputed: frozenset[int]) -> int:
    """Most that `rank` keeps at once in a step, over all its stages and micro-batches in flight."""
    here = work.layout.coordinates(rank)
    stages = rank_stages(work.layout, here["pp"])
    plain, again = block_bytes(work, "none"), block_bytes(work, work.layout.recompute)
    sizes = {
        stage: edge_bytes(work, stage, here["tp"]) + sum(again if b in recomputed else plain for b in blocks)
        for stage, blocks in zip(stages, _blocks(work, rank), strict=True)
    }
    schedule = work.schedule
    if schedule is None:
        return sizes[0]
    held = most = 0
    for action in schedule.ranks[here["pp"]]:
        if action.kind is Kind.F:
            held += sizes[action.stage]
            most = max(most, held)
        elif action.kind in (Kind.B, Kind.W):
            held -= sizes[action.stage]
    return most


def _blocks(work: Work, rank: int) -> list[range]:
    stages = rank_stages(work.layout, work.layout.coordinates(rank)["pp"])
    everywhere = stage_blocks(work.layout, work.model.layers)
    return [everywhere[stage] for stage in stages]
