"""Peak memory of the worst rank, term by term (bytes)."""

from dataclasses import dataclass

import numpy as np

from argosy.planner.step_time import layer_parameters
from argosy.planner.workload import Array, Workload


@dataclass(frozen=True)
class Memory:
    """What fills a rank's memory at its peak, on the pipeline rank that needs most."""

    weights: Array
    gradients: Array
    optimizer: Array
    activations: Array
    logits: Array
    buffers: Array

    @property
    def allocated(self) -> Array:
        """What an allocator reports as its peak."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.buffers


def saved_bytes(w: Workload) -> tuple[Array, Array]:
    """Bytes that one layer saves for its backward, per micro-batch and rank: (kept whole, recomputed)."""
    tokens, h = w.tokens, w.hidden
    seq_ranks = np.where(w.sequence_parallel > 0, w.tp, 1.0)
    kv = w.kv_heads * w.head_dim
    q = w.heads * w.head_dim
    # norm inputs and outputs, residual; inputs of the linear layers
    residual = tokens * h * 2.0 * 4.0 / seq_ranks
    attention = tokens * 2.0 * (2.0 * q + 2.0 * kv) / w.tp + 4.0 * tokens * w.heads / w.tp
    width = np.where(w.experts > 0, w.moe_ffn * w.topk, w.ffn)
    mlp = tokens * width / w.tp * np.where(w.gated > 0, 8.0, 4.0)
    routed = np.where(w.experts > 0, 2.0 * 2.0 * tokens * h * w.topk / seq_ranks, 0.0)
    scores = np.where(w.flash > 0, 0.0, 5.0 * w.tokens * w.sequence * w.heads / w.tp)
    kept = residual + attention + mlp + routed + scores * (1.0 - w.recompute_core)
    return kept, 2.0 * tokens * h / seq_ranks


def memory(w: Workload) -> Memory:
    """Terms of the worst pipeline rank of each case."""
    dense, expert = layer_parameters(w)
    embed = w.vocab * w.hidden / w.tp
    own_layers = np.where(w.balanced > 0, w.layers / w.pp, np.ceil(w.layers / w.stages) * w.vpp)
    experts = expert * own_layers / (w.tp * w.ep)
    ends = np.where(w.pp > 1, 1.0, np.where(w.tied > 0, 1.0, 2.0)) * embed
    own = dense * own_layers / w.tp + ends
    shard = np.where(w.zero >= 3, w.shard_ranks, 1.0)
    working = np.where(w.zero >= 3, 2.0 * 2.0 * (dense + expert / w.ep) / w.tp + 2.0 * embed, 0.0)
    weights = np.where(w.zero >= 3, 4.0, 2.0) * (own + experts) / shard + working
    gradients = w.grad_bytes * (own + experts) / np.where(w.zero >= 3, shard, np.where(w.zero >= 2, w.dp, 1.0))
    owners = np.where(w.zero >= 3, w.shard_ranks, np.where(w.zero >= 1, w.dp * w.cp, 1.0))
    state = np.where(w.zero >= 3, w.master_bytes - 4.0, w.master_bytes)
    optimizer = state * (own / owners + experts / np.maximum(1.0, owners / w.ep))

    m = w.micro_batches
    # 1F1B keeps min(m, p) micro-batches on the first rank; interleaving 1 + (p-1)/(p v) times as many
    flight = np.minimum(m, w.pp) * np.where(w.vpp > 1, 1.0 + (w.pp - 1.0) / (w.pp * w.vpp), 1.0)
    kept, again = saved_bytes(w)
    saved = kept + w.recompute_layers * (again - kept)
    extra = np.where(w.recompute_layers > 0, kept, 0.0)
    first = flight * saved * w.layers / w.pp + extra
    last = np.where(w.pp > 1, saved * w.layers / w.pp + extra, first)
    logits = w.logits_copies * 4.0 * w.tokens * w.vocab / w.tp
    at_end = last + logits
    worst_first = first > at_end
    return Memory(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=np.where((w.pp > 1) & worst_first, first, last),
        logits=np.where((w.pp > 1) & worst_first, 0.0, logits),
        buffers=np.zeros(len(w)),
    )


def settle_recompute(w: Workload, budget: float = 0.85) -> Workload:
    """Where the share of recomputed layers is not stated: the least that keeps `budget` of the memory."""
    unknown = np.isnan(w.recompute_layers)
    none = memory(w.replace(recompute_layers=np.where(unknown, 0.0, w.recompute_layers))).allocated
    full = memory(w.replace(recompute_layers=np.where(unknown, 1.0, w.recompute_layers))).allocated
    share = np.clip((none - budget * w.memory_bytes) / np.maximum(none - full, 1.0), 0.0, 1.0)
    return w.replace(recompute_layers=np.where(unknown, share, w.recompute_layers))


FIXED_BYTES = 5.0 * 2**30
"""Context of the driver, communication buffers, workspaces of libraries: outside the allocator's peak.
Of 1,728 measured runs on 80 GB parts none allocated more than 69.8 GiB."""
FRAGMENTATION = 1.04
"""Reserved ÷ allocated: median of Megatron runs on B200 (largest 1.09)."""


def reserved_bytes(allocated: Array) -> Array:
    """What the device must have for a given peak of the allocator."""
    return allocated * FRAGMENTATION + FIXED_BYTES
