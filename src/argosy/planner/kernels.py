"""Time of kernels on one accelerator: matrix products by shape, attention, memory-bound passes.

Shapes enter smoothly: instead of counting tiles and waves of one library's kernel choice, which changes with
every release, a product pays the *expected* waste of rounding to tiles and of the last, partly filled wave.
"""

import numpy as np

from argosy.planner.constants import Values
from argosy.planner.workload import DIES, Array, Workload

AMPERE, VOLTA = DIES.index("A100"), DIES.index("V100")
FLASH_RATE = np.array([[1.0, 0.5, 1.0, 1.0], [1.0, 0.3, 0.6, 1.0]])
"""Speed of attention kernels relative to the vendor's, by (Ampere | later, generation): FlashAttention-2 doubles the
first (arXiv 2307.08691); on Hopper, which it was not written for, it reaches 0.5–0.65 of the third (2407.08608)."""

TILE = 128.0 * 256.0
"""Elements of the output tile that one processor computes at a time (large tiles of CUTLASS and cuBLAS)."""


def gemm_s(
    w: Workload, c: Values, flops_per_s: Array, group_size: Array | float, m: Array, n: Array, k: Array
) -> Array:
    """Seconds of one product [m, k] · [k, n] of a group of `group_size` equal ones that run in one kernel.

    ``2 (m n + wave) (k + fill) / rate``: `wave` is the part of a wave that stays empty on average, `fill` the
    depth over which a tile's pipeline starts and drains. A product is never faster than its operands' transfer.
    """
    wave = c.wave * w.processors * TILE / group_size
    compute = 2.0 * (m * n + wave) * (k + c.fill) / flops_per_s
    transfer = 2.0 * (m * k + k * n + m * n) / (w.memory_bytes_per_s * c.memory)
    return np.hypot(compute, transfer)


def attention_s(w: Workload, c: Values, backward: bool) -> Array:
    """Seconds of the attention core of one layer and micro-batch on one rank (causal)."""
    heads = w.heads / w.tp
    tokens = w.tokens
    flops = 2.0 * tokens * w.sequence * heads * w.head_dim  # causal half of QKᵀ and PV, forward
    blocks = w.micro_batch * heads * w.sequence / w.cp / 128.0
    occupancy = 1.0 + c.attention_wave * w.processors / blocks
    rate = (
        w.bf16_flops_per_s
        * c.attention
        * FLASH_RATE[np.where((w.die == AMPERE) | (w.die == VOLTA), 0, 1), w.flash.astype(int)]
    )
    fused = flops * occupancy / rate * (2.5 if backward else 1.0)
    # The scores are written and read by each of: product, scale and mask, softmax, dropout, product (arXiv 2205.14135)
    scores = 2.0 * tokens * w.sequence * heads * (c.score_passes * (1.5 if backward else 1.0))
    unfused = 2.0 * flops / rate * (2.0 if backward else 1.0) + scores / (w.memory_bytes_per_s * c.memory)
    return np.where(w.flash > 0, fused, unfused)


def passes_s(w: Workload, c: Values) -> Array:
    """Seconds of one layer's forward passes that only move memory: norms, residuals, rotary, activation, casts."""
    residual_ranks = np.where(w.sequence_parallel > 0, w.tp, 1.0)
    width_ffn = np.where(w.experts > 0, w.moe_ffn * np.maximum(w.topk, 1.0), w.ffn) * (1.0 + w.gated)
    bytes_ = 2.0 * w.tokens * (c.residual_passes * w.hidden / residual_ranks + c.ffn_passes * width_ffn / w.tp)
    bytes_ = bytes_ + 2.0 * w.tokens * c.route_passes * w.topk * w.hidden / residual_ranks * (w.experts > 0)
    bytes_ = bytes_ * np.where(w.fused > 0, 1.0, c.eager)
    quantise = np.where(w.dtype >= 3, c.cast_passes, 0.0) * 2.0 * w.tokens * (2.0 * w.hidden + width_ffn / w.tp)
    return (bytes_ + quantise) / (w.memory_bytes_per_s * c.memory)
