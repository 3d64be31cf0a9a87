"""Step time of a workload, term by term (seconds)."""

from dataclasses import dataclass

import numpy as np

from argosy.planner.collectives import all_reduce_s, all_to_all_s, group, pass_s
from argosy.planner.constants import Values
from argosy.planner.kernels import attention_s, gemm_s, passes_s
from argosy.planner.workload import Array, Workload

TENSORS_PER_LAYER = 7.0
"""Weights of one layer: query, key, value (one or three), output, the MLP's, two norms."""


@dataclass(frozen=True)
class StepTime:
    """Where one step goes; the terms add up to `total`."""

    compute: Array
    tp_comm: Array
    ep_comm: Array
    cp_comm: Array
    pp_comm: Array
    bubble: Array
    dp_comm: Array
    optimizer: Array
    host: Array
    head: Array
    """Of `compute`: output layer and loss of one micro-batch."""

    @property
    def total(self) -> Array:
        return (
            self.compute
            + self.tp_comm
            + self.ep_comm
            + self.cp_comm
            + self.pp_comm
            + self.bubble
            + self.dp_comm
            + self.optimizer
            + self.host
        )


def layer_parameters(w: Workload) -> tuple[Array, Array]:
    """(dense, expert) parameters of one whole layer; dense includes attention and norms."""
    attention = w.hidden * w.head_dim * (2.0 * w.heads + 2.0 * w.kv_heads)
    mlp = (2.0 + w.gated) * w.hidden * w.ffn
    moe = w.experts * (2.0 + w.gated) * w.hidden * w.moe_ffn
    is_moe = w.experts > 0
    router = w.experts * w.hidden
    return attention + np.where(is_moe, router, mlp) + 2.0 * w.hidden, np.where(is_moe, moe, 0.0)


def model_flops(w: Workload) -> Array:
    """FLOPs of one step as most sources count them: 6 per matmul parameter and token, full attention, logits."""
    mlp = (2.0 + w.gated) * w.hidden * np.where(w.experts > 0, w.moe_ffn * w.topk, w.ffn)
    matmul = w.layers * (w.hidden * w.head_dim * (2.0 * w.heads + 2.0 * w.kv_heads) + mlp) + w.vocab * w.hidden
    attention = 12.0 * w.layers * w.sequence * w.heads * w.head_dim
    return (6.0 * matmul + attention) * w.global_batch * w.sequence


def step_time(w: Workload, c: Values) -> StepTime:
    """Predicted terms of one step of each case."""
    rate = w.peak_flops_per_s * c.gemm
    tokens, h = w.tokens, w.hidden
    m = w.micro_batches
    is_moe = w.experts > 0

    def linear(
        rows: Array, wide: Array, deep: Array, group_size: Array | float = 1.0, share: Array | float = 1.0
    ) -> tuple[Array, Array]:
        """Seconds of the forward product of one linear layer, and of its two backward products."""
        of = (w, c, rate * share, group_size)
        return gemm_s(*of, rows, wide, deep), gemm_s(*of, rows, deep, wide) + gemm_s(*of, deep, wide, rows)

    qkv = linear(tokens, w.head_dim * (w.heads + 2.0 * w.kv_heads) / w.tp, h)
    out = linear(tokens, h, w.head_dim * w.heads / w.tp)
    gates = 1.0 + w.gated
    routed = tokens * np.where(is_moe, w.topk, 1.0)
    local_experts = np.where(is_moe, np.maximum(w.experts / w.ep, 1.0), 1.0)
    rows = routed / local_experts
    width = np.where(is_moe, w.moe_ffn, w.ffn) / w.tp
    # One grouped kernel computes all local experts, so they share its waves, but run below a plain product's rate
    many = np.where(is_moe, c.grouped, 1.0)
    up, down = linear(rows, gates * width, h, local_experts, many), linear(rows, h, width, local_experts, many)
    forward = qkv[0] + out[0] + local_experts * (up[0] + down[0])
    backward = qkv[1] + out[1] + local_experts * (up[1] + down[1])
    passes = passes_s(w, c)
    core_f, core_b = attention_s(w, c, False), attention_s(w, c, True)
    f_layer = forward + core_f + passes
    b_layer = backward + core_b + 2.0 * passes
    repeated = w.recompute_layers
    again = repeated * f_layer + (1.0 - repeated) * w.recompute_core * core_f

    # -- tensor parallel: two all-reduces (or gather + scatter) of the activations each way --------
    tp_group = group(w, c, w.tp, np.ones(len(w)))
    one = all_reduce_s(tp_group, 2.0 * tokens * h)
    exposed_tp = np.where(w.overlap_tp > 0, c.tp_exposed, 1.0)
    tp_layer_f = 2.0 * one * exposed_tp
    tp_layer = tp_layer_f * (2.0 + repeated)

    # -- experts: dispatch and combine, both ways ----------------------------------------------------
    ep_group = group(w, c, w.ep, w.tp)
    ep_layer = np.where(is_moe, 4.0 * all_to_all_s(ep_group, 2.0 * tokens * w.topk * h / w.tp), 0.0)

    # -- context parallel: the ring's keys and values, hidden behind attention where that is longer ---
    cp_group = group(w, c, w.cp, w.tp)
    ring = 3.0 * pass_s(cp_group, 2.0 * 2.0 * w.micro_batch * w.sequence * w.kv_heads * w.head_dim / w.tp)
    cp_layer = np.maximum(0.0, ring - 0.5 * (core_f + core_b)) + 0.1 * ring

    # -- host: a layer cannot run faster than its kernels are launched --------------------------------
    gpu_layer = f_layer + b_layer + again
    calls = np.where(w.tp > 1, 8.0 + 4.0 * repeated, 0.0)
    between_nodes = (w.pp > 1) & (w.gpus > w.domain) & (w.blocking_p2p > 0)
    launches = c.host_layer * (3.0 + repeated) + calls * (c.host_comm + np.where(between_nodes, c.blocking * w.tp, 0.0))
    host_layer = np.where(w.host_scale > 0, launches, 0.3 * launches)
    busy = gpu_layer + tp_layer
    # Queues decouple both only in part, so the change from one limit to the other is gradual
    floor = (busy**6 + host_layer**6) ** (1.0 / 6.0) - busy

    # -- the two ends of the pipeline ------------------------------------------------------------------
    logits = linear(tokens, w.vocab / w.tp, h)
    loss_pass = c.loss_passes * 4.0 * tokens * w.vocab / w.tp / (w.memory_bytes_per_s * c.memory)
    head = logits[0] + logits[1] + loss_pass
    layer = gpu_layer + tp_layer + ep_layer + cp_layer + floor
    stage_layers = np.ceil(w.layers / w.stages) * w.vpp
    even = w.layers / w.pp
    mean_rank = (w.layers * layer + head) / w.pp
    uneven = np.maximum(stage_layers * layer, even * layer) + np.where(w.pp > 1, head, head)
    levelled = np.maximum(mean_rank, even * layer)
    divisible = np.abs(w.layers / w.stages - np.round(w.layers / w.stages)) < 1e-9
    longest = np.where(
        w.pp > 1, np.where((w.balanced > 0) | ~divisible, levelled + 0.5 * layer * (w.balanced > 0), uneven), mean_rank
    )

    # -- pipeline -----------------------------------------------------------------------------------------
    bubble = w.bubble_share * (w.pp - 1.0) * mean_rank / w.vpp + m * (longest - mean_rank)
    hop_group = group(w, c, np.where(w.pp > 1, 2.0, 1.0), w.gpus / w.pp)
    hop = np.where(
        w.pp > 1,
        2.0 * tokens * h / np.where(w.sequence_parallel > 0, w.tp, 1.0) / hop_group.bytes_per_s + hop_group.ring_s,
        0.0,
    )
    pp_comm = hop * 2.0 * ((w.pp - 1.0) + c.p2p_exposed * m * w.vpp)

    # -- data parallel ------------------------------------------------------------------------------------
    dense, expert = layer_parameters(w)
    ends = w.vocab * h * np.where(w.pp > 1, 1.0, np.where(w.tied > 0, 1.0, 2.0))
    own_dense = (dense * w.layers / w.pp + ends) / w.tp
    own_expert = expert * w.layers / w.pp / (w.tp * w.ep)
    stride = w.tp * w.cp
    dp_group = group(w, c, w.dp * w.cp, w.tp)
    edp_group = group(w, c, np.maximum(1.0, w.dp * w.cp / w.ep), w.tp * w.ep)
    b_micro = w.layers / w.pp * (b_layer + again)
    f_micro = w.layers / w.pp * f_layer
    # Software that overlaps sends buckets of about a layer; the rest sends tensor by tensor
    calls = w.layers / w.pp * np.where(w.overlap_dp > 0, 1.0, TENSORS_PER_LAYER)
    sharded = w.zero > 0
    reduce = pass_s(dp_group, own_dense * w.grad_bytes, calls) + pass_s(edp_group, own_expert * w.grad_bytes)
    gather = pass_s(dp_group, own_dense * 2.0, calls) + pass_s(edp_group, own_expert * 2.0)
    both = all_reduce_s(dp_group, own_dense * w.grad_bytes, calls) + all_reduce_s(edp_group, own_expert * w.grad_bytes)
    reduce, gather = np.where(sharded, reduce, both), np.where(sharded, gather, 0.0)
    hidden = np.where(w.overlap_dp > 0, c.dp_hidden, 0.0)
    # Transfers of a virtual stage start when its last micro-batch is through, while the other stages still work
    turns = np.where(w.vpp > 1, 1.0 + (np.minimum(m, w.pp) - 1.0) * (w.vpp - 1.0) / w.vpp, 1.0)
    dp_plain = np.maximum(reduce - hidden * b_micro * turns, 0.1 * reduce) + np.maximum(
        gather - hidden * f_micro * turns, 0.1 * gather
    )
    shard_group = group(w, c, w.shard_ranks, stride)
    per_layer = (dense + expert / w.ep) / w.tp
    gather_l = pass_s(shard_group, per_layer * 2.0)
    reduce_l = pass_s(shard_group, per_layer * w.grad_bytes)
    wait_f = np.maximum(0.0, gather_l - c.fsdp_hidden * f_layer)
    wait_b = np.maximum(0.0, gather_l + reduce_l - c.fsdp_hidden * (b_layer + again))
    replica = group(w, c, np.maximum(1.0, w.dp / w.shard_ranks), stride * w.shard_ranks)
    outer = all_reduce_s(replica, per_layer * w.layers * w.grad_bytes / w.shard_ranks)
    dp_sharded = (
        m * w.layers / w.pp * (wait_f + wait_b) + gather_l + reduce_l + np.maximum(0.0, outer - hidden * b_micro)
    )
    dp_comm = np.where(w.zero >= 3, dp_sharded, dp_plain)

    owned = (own_dense + own_expert) / np.where(w.zero > 0, w.dp, 1.0)
    optimizer = c.optimizer_passes * 30.0 * owned / (w.memory_bytes_per_s * c.memory) + c.step_overhead
    per_rank_layers = w.layers / w.pp * m
    compute = m * ((w.layers * gpu_layer + head) / w.pp)
    terms = StepTime(
        compute=compute,
        tp_comm=per_rank_layers * tp_layer,
        ep_comm=per_rank_layers * ep_layer,
        cp_comm=per_rank_layers * cp_layer,
        pp_comm=pp_comm,
        bubble=bubble,
        dp_comm=dp_comm,
        optimizer=optimizer,
        host=per_rank_layers * floor + m * c.micro_overhead,
        head=head,
    )
    jitter = c.jitter * np.log2(np.maximum(1.0, w.gpus / w.domain))
    return StepTime(**{**terms.__dict__, "host": terms.host + jitter * terms.total})
