"""Many (model, layout, machine) combinations side by side: one array per quantity.

The cost model is arithmetic on such arrays, so that one case, three thousand measured rows and a whole
search are the same code at the same speed per call.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.hardware.parts import Part, parts

Array = NDArray[np.float64]
Index = NDArray[np.int64]

DTYPES = ("fp32", "fp16", "bf16", "fp8", "fp4")
"""Values of :attr:`Workload.dtype` are indices into this."""


DIES = tuple(dict.fromkeys(part.die for part in parts()))
"""Values of :attr:`Workload.die` are indices into this."""


@dataclass(frozen=True)
class Workload:
    """What is computed, how it is split, and on what. All arrays have shape [N]; counts are floats."""

    # model
    layers: Array
    hidden: Array
    heads: Array
    kv_heads: Array
    head_dim: Array
    ffn: Array
    vocab: Array
    sequence: Array
    gated: Array
    tied: Array
    experts: Array  # 0: dense
    topk: Array
    moe_ffn: Array
    # layout
    gpus: Array
    dp: Array  # dp·fsdp
    shard_ranks: Array  # ranks that share one copy of the sharded state, at most dp
    tp: Array
    pp: Array
    vpp: Array
    bubble_share: Array  # bubble relative to 1F1B's of as many virtual stages: below 1 where backwards are split
    cp: Array
    ep: Array
    zero: Array
    micro_batch: Array
    global_batch: Array  # sequences
    recompute_layers: Array  # share of layers whose forward runs again; NaN: the least that fits
    recompute_core: Array  # whether the attention core runs again in the others
    dtype: Array
    # software (argosy.planner.software)
    flash: Array
    fused: Array
    sequence_parallel: Array
    overlap_tp: Array
    overlap_dp: Array
    blocking_p2p: Array
    balanced: Array
    grad_bytes: Array
    master_bytes: Array  # beside the 16-bit copy: fp32 master weight and two moments
    grad_copy_bytes: Array
    logits_bytes: Array
    host_scale: Array
    # machine
    die: Array  # index into DIES, -1 for a part that a user described
    sustained_share: Array  # of peak, kept up by large products: the prior where a die has no constant
    peak_flops_per_s: Array
    bf16_flops_per_s: Array
    memory_bytes: Array
    memory_bytes_per_s: Array
    processors: Array
    link_bytes_per_s: Array
    domain: Array
    nic_bytes_per_s: Array
    ethernet: Array

    def __len__(self) -> int:
        return len(self.layers)

    def take(self, index: Any) -> "Workload":
        """The cases at `index` (mask, slice or integers)."""
        return Workload(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def replace(self, **changes: Any) -> "Workload":
        """A copy with other arrays; scalars are broadcast."""
        size = len(self)
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return Workload(**content | {k: np.broadcast_to(np.asarray(v, float), size) for k, v in changes.items()})

    @classmethod
    def stack(cls, rows: list[dict[str, float]]) -> "Workload":
        """One case per row; every field must be present."""
        return cls(**{f.name: np.array([row[f.name] for row in rows], dtype=float) for f in fields(cls)})

    # -- derived ------------------------------------------------------------------------------------

    @property
    def micro_batches(self) -> Array:
        """Micro-batches of one step on one rank."""
        return np.maximum(1.0, self.global_batch / (self.dp * self.micro_batch))

    @property
    def tokens(self) -> Array:
        """Tokens of one micro-batch on one rank."""
        return self.micro_batch * self.sequence / self.cp

    @property
    def stages(self) -> Array:
        return self.pp * self.vpp


def machine_fields(part: Part, dtype: str, per_node: float | None, nic_bytes_per_s: float | None) -> dict[str, float]:
    """The machine's share of a row. Raises KeyError when `part` has no such dtype."""
    domain = part.domain if part.domain > 8 else min(part.domain, per_node or part.per_node)
    return {
        "die": float(DIES.index(part.die)) if part.die in DIES else -1.0,
        "sustained_share": part.sustained_share,
        "peak_flops_per_s": part.peak_flops_per_s[dtype],
        "bf16_flops_per_s": part.peak_flops_per_s.get("bf16", part.peak_flops_per_s.get("fp16", 0.0)),
        "memory_bytes": float(part.memory_bytes),
        "memory_bytes_per_s": part.memory_bytes_per_s,
        "processors": float(part.processors),
        "link_bytes_per_s": part.link_bytes_per_s,
        "domain": float(max(1, domain)),
        "nic_bytes_per_s": nic_bytes_per_s or part.nic_bytes_per_s,
    }
