"""Peak memory of the worst rank, term by term (bytes).

Counts follow the tensors that a decoder keeps for its backward (Korthikanti et al. 2022, arXiv 2205.05198, without
dropout and with an attention kernel that keeps no scores); what the counts cannot know is :func:`reserved_bytes`.
"""

from dataclasses import dataclass

import numpy as np

from argosy.planner.step_time import layer_parameters
from argosy.planner.workload import Array, Workload

FIXED_BYTES = 6.0 * 2**30
"""Context of the driver, communication buffers, workspaces of libraries: outside the allocator's peak.
Of 1,728 measured runs on 80 GB parts none allocated more than 69.8 GiB."""
FRAGMENTATION = 1.05
"""Reserved ÷ allocated: Megatron runs on B200 have a median of 1.04 and at most 1.09."""
EAGER_BYTES = 10.0
"""Bytes per hidden element and layer that unfused element-wise code keeps beside the counted tensors: fp32 copies
inside norms, rotated queries and keys beside the unrotated."""
TRANSIENT_BYTES = 28.0
"""Bytes per hidden element of gathered inputs, their gradients and one layer's temporaries, alive for a moment."""
ACCUMULATION_BYTES = 4.0
"""Bytes per logit more where gradients accumulate: the last micro-batch's fp32 gradient is freed late."""


@dataclass(frozen=True)
class Memory:
    """What fills a rank's memory at its peak, on the pipeline rank that needs most."""

    weights: Array
    gradients: Array
    optimizer: Array
    activations: Array
    logits: Array
    buffers: Array
    """Gathered weights of the layer in use and the next, temporaries of one layer."""

    @property
    def allocated(self) -> Array:
        """What an allocator reports as its peak."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.buffers


def saved_bytes(w: Workload) -> tuple[Array, Array]:
    """Bytes that one layer saves for its backward, per micro-batch and rank: (kept whole, recomputed).

    Kept, at 2 bytes each: input and output of two norms, queries, keys, values, the attention's output; of the MLP
    its product and, before it, each branch. Recomputed: the layer's input. Inputs of 8- and 4-bit products are kept
    in one byte.
    """
    tokens, h = w.tokens, w.hidden
    seq_ranks = np.where(w.sequence_parallel > 0, w.tp, 1.0)
    query, key = w.heads * w.head_dim, w.kv_heads * w.head_dim
    narrow = np.where(w.dtype >= 3, 1.0, 0.0)
    residual = tokens * h * (8.0 - 2.0 * narrow + np.where(w.fused > 0, 0.0, EAGER_BYTES)) / seq_ranks
    attention = tokens * (2.0 * (2.0 * query + 2.0 * key) + 4.0 * w.heads) / w.tp
    width = np.where(w.experts > 0, w.moe_ffn * w.topk, w.ffn)
    mlp = tokens * width / w.tp * (np.where(w.gated > 0, 7.0, 4.0) - narrow)
    routed = np.where(w.experts > 0, 4.0 * tokens * h * w.topk / seq_ranks, 0.0)
    # 16-bit scores and probabilities, and a byte of dropout mask
    scores = np.where(w.flash > 0, 0.0, 5.0 * tokens * w.sequence * w.heads / w.tp)
    kept = residual + attention + mlp + routed + scores * (1.0 - w.recompute_core)
    return kept, 2.0 * tokens * h / seq_ranks


UNEVEN = 0.5
"""Layers that the first rank has above its share when stages are cut by cost: the expected rounding of whole layers."""


def stage_layers(w: Workload) -> tuple[Array, Array]:
    """Layers of the first and of the last pipeline rank; fractions where a cut is not stated."""
    block = w.hidden * w.head_dim * (2.0 * w.heads + 2.0 * w.kv_heads) + (2.0 + w.gated) * w.hidden * np.where(
        w.experts > 0, w.moe_ffn * w.topk, w.ffn
    )
    head = w.vocab * w.hidden / block
    per_rank = (w.layers + head) / w.pp
    even = w.layers / w.pp
    by_cost = w.balanced > 0
    first = np.where(by_cost, np.minimum(per_rank + UNEVEN, w.layers), even)
    last = np.where(by_cost, np.maximum(per_rank - head, 0.0), even)
    return np.where(w.pp > 1, first, w.layers), np.where(w.pp > 1, last, w.layers)


def memory(w: Workload) -> Memory:
    """Terms of the worst pipeline rank of each case: the first, with most micro-batches, or the last, with logits."""
    first_layers, last_layers = stage_layers(w)
    m = w.micro_batches
    # 1F1B keeps min(m, p) micro-batches on the first rank; interleaving 1 + (p-1)/(p v) times as many
    flight = np.minimum(m, w.pp * np.where(w.vpp > 1, 1.0 + (w.pp - 1.0) / (w.pp * w.vpp), 1.0))
    single = w.pp <= 1
    first = _rank(w, first_layers, flight, embedding=np.ones(len(w)), output=single.astype(float))
    last = _rank(w, last_layers, np.ones(len(w)), embedding=single.astype(float), output=np.ones(len(w)))
    worse = last.allocated > first.allocated
    terms = {name: np.where(worse, getattr(last, name), value) for name, value in first.__dict__.items()}
    return Memory(**terms)


def _rank(w: Workload, layers: Array, flight: Array, embedding: Array, output: Array) -> Memory:
    """Terms of one pipeline rank with `layers` layers and `flight` micro-batches of activations."""
    dense, expert = layer_parameters(w)
    table = w.vocab * w.hidden / w.tp
    ends = np.where((embedding > 0) & (output > 0), np.where(w.tied > 0, 1.0, 2.0), embedding + output) * table
    own = dense * layers / w.tp + ends
    experts = expert * layers / (w.tp * w.ep)
    sharded = w.zero >= 3
    shard = np.where(sharded, w.shard_ranks, 1.0)
    layer = 2.0 * (dense + expert / w.ep) / w.tp
    working = np.where(sharded, 2.0 * layer + np.where(ends > 0, 2.0 * table, 0.0), 0.0)
    owners = np.where(sharded, w.shard_ranks, np.where(w.zero >= 1, w.dp * w.cp, 1.0))
    state = np.where(sharded, w.master_bytes - 4.0, w.master_bytes)
    reduced = np.where(w.zero == 2, owners, shard)

    kept, again = saved_bytes(w)
    saved = kept + w.recompute_layers * (again - kept)
    # While one layer's forward runs again, all its tensors are there
    replay = np.where(w.recompute_layers > 0, kept, 0.0)
    per_logit = np.where(w.logits_bytes > 0, w.logits_bytes + ACCUMULATION_BYTES * (w.micro_batches > 1), 0.0)
    return Memory(
        weights=np.where(sharded, 4.0, 2.0) * (own + experts) / shard,
        gradients=(w.grad_bytes + w.grad_copy_bytes) * (own + experts) / reduced,
        optimizer=state * (own / owners + experts / np.maximum(1.0, owners / w.ep)),
        activations=flight * saved * layers + replay,
        logits=output * per_logit * w.tokens * w.vocab / w.tp,
        buffers=working + TRANSIENT_BYTES * w.tokens * w.hidden,
    )


def settle_recompute(w: Workload, budget: float = 0.90) -> Workload:
    """Where the share of recomputed layers is not stated: the least that keeps `budget` of the memory."""
    unknown = np.isnan(w.recompute_layers)
    none = memory(w.replace(recompute_layers=np.where(unknown, 0.0, w.recompute_layers))).allocated
    full = memory(w.replace(recompute_layers=np.where(unknown, 1.0, w.recompute_layers))).allocated
    share = np.clip((none - budget * w.memory_bytes) / np.maximum(none - full, 1.0), 0.0, 1.0)
    return w.replace(recompute_layers=np.where(unknown, share, w.recompute_layers))


def reserved_bytes(allocated: Array) -> Array:
    """What the device must have for a given peak of the allocator."""
    return allocated * FRAGMENTATION + FIXED_BYTES
