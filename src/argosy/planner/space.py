"""Every layout that a model and a cluster allow, as one workload, pruned by bounds that cost nothing.

What is pruned provably cannot fit: memory grows with the micro-batch and with what is not recomputed, so a group of
layouts whose smallest member does not fit has no member that fits.
"""

import math
from dataclasses import dataclass

import numpy as np

from argosy.errors import UsageError
from argosy.hardware.cluster import Cluster
from argosy.layout.layout import Layout
from argosy.planner.memory import memory, reserved_bytes
from argosy.planner.question import Question
from argosy.planner.software import SOFTWARE
from argosy.planner.workload import DTYPES, Array, Workload, machine_fields

ENGINE = next(family for family in SOFTWARE if family.name == "argosy")
MAX_VIRTUAL = 8
"""More virtual stages than this gain little bubble and pay a transfer each."""
SPLIT_BACKWARD = 1 / 3
"""Bubble of schedules that split the backward, relative to 1F1B's of as many virtual stages: p - 1 units in place of
3 (p - 1), exact for forwards and halves of backwards of equal length (tests/layout/test_schedule_theory.py)."""
SCHEDULES = ("none", "1f1b", "interleaved_1f1b", "zero_bubble", "zbv")


@dataclass(frozen=True)
class Space:
    """Layouts side by side: ``workload`` row i is layout i."""

    workload: Workload
    schedule: Array
    """Index into SCHEDULES."""
    considered: int
    """Layouts before pruning."""

    def __len__(self) -> int:
        return len(self.workload)

    def layout(self, i: int) -> Layout:
        """Row i as the object that the engine reads."""
        w = self.workload
        shard, dp = int(w.shard_ranks[i]), int(w.dp[i])
        zero = int(w.zero[i])
        fsdp = shard if zero else 1
        return Layout(
            dp=dp // fsdp,
            fsdp=fsdp,
            cp=int(w.cp[i]),
            tp=int(w.tp[i]),
            pp=int(w.pp[i]),
            ep=int(w.ep[i]),
            zero=zero if fsdp > 1 else 0,  # type: ignore[arg-type]
            schedule=SCHEDULES[int(self.schedule[i])],
            virtual_stages=int(w.vpp[i]),
            micro_batch_sequences=int(w.micro_batch[i]),
            recompute="full" if w.recompute_layers[i] > 0 else "none",
            compile=True,
            reshard_after_forward=zero == 3,
        )


def build_space(question: Question, cluster: Cluster, prune: bool = True) -> Space:
    """All layouts of `question` on all accelerators of `cluster`.

    Raises UsageError when there is none, with what stands in the way and the nearest count that would do.
    """
    groups = _groups(question, cluster)
    if not len(groups):
        raise UsageError(
            f"no layout puts {question.batch_sequences} sequences per batch on {cluster.count} accelerators",
            where="cluster",
            do=f"use {_nearest(question, cluster)} accelerators, or another batch",
        )
    base = _workload(question, cluster, groups)
    keep = np.arange(len(groups))
    if prune:
        least = base.replace(micro_batch=1.0, recompute_layers=1.0)
        keep = np.flatnonzero(reserved_bytes(memory(least).allocated) <= base.memory_bytes)
    # Expand each group by micro-batch and recompute
    share = question.batch_sequences / groups[:, 3]
    sizes = [size for size in _divisors(question.batch_sequences) if size <= 64]
    rows: list[Array] = []
    total = 0
    for size in sizes:
        ok = np.flatnonzero((share % size == 0) & (share >= size))
        # A pipeline needs its micro-batches: one round for interleaving, two for a V
        m = share[ok] / size
        need = np.select([groups[ok, 7] == 2, groups[ok, 7] == 4], [groups[ok, 1], 2 * groups[ok, 1]], 1.0)
        whole = np.where(groups[ok, 7] == 2, m % groups[ok, 1] == 0, True)
        ok = ok[(m >= need) & whole]
        total += 2 * len(ok)
        ok = ok[np.isin(ok, keep)]
        for again in (0.0, 1.0):
            rows.append(np.stack([ok, np.full(len(ok), size), np.full(len(ok), again)], axis=1))
    table = np.concatenate(rows) if rows else np.zeros((0, 3))
    index = table[:, 0].astype(int)
    workload = base.take(index).replace(micro_batch=table[:, 1], recompute_layers=table[:, 2])
    if prune and len(index):
        fits = reserved_bytes(memory(workload).allocated) <= workload.memory_bytes
        workload, index = workload.take(fits), index[fits]
    return Space(workload, groups[index, 7], total)


def space_of(question: Question, cluster: Cluster, layout: Layout) -> Space:
    """A space of one layout. Schedules outside SCHEDULES are costed as 1F1B with as many virtual stages."""
    schedule = SCHEDULES.index(layout.schedule) if layout.schedule in SCHEDULES else 1 + (layout.virtual_stages > 1)
    zero = layout.zero if layout.fsdp > 1 else 0
    shard = layout.fsdp if zero else 1
    columns = (layout.tp, layout.pp, layout.cp, layout.data_ranks, shard, zero, layout.virtual_stages, schedule)
    base = _workload(question, cluster, np.array([columns], dtype=float))
    micro = layout.micro_batch_sequences or question.batch_sequences // layout.data_ranks
    workload = base.replace(micro_batch=micro, recompute_layers=float(layout.recompute == "full"))
    return Space(workload, np.array([float(schedule)]), 1)


def _groups(question: Question, cluster: Cluster) -> Array:
    """Columns tp, pp, cp, dp, shard ranks, zero, virtual stages, schedule of every valid combination."""
    model, n, batch = question.model, cluster.count, question.batch_sequences
    assert model.kv_heads is not None
    rows: list[tuple[int, ...]] = []
    heads = math.gcd(model.heads, model.kv_heads, model.ffn_size)
    for tp in (d for d in _divisors(heads) if n % d == 0):
        for pp in (d for d in _divisors(n // tp) if d <= model.layers):
            for cp in (c for c in _powers(n // (tp * pp)) if question.sequence_length % (2 * c) == 0 or c == 1):
                dp = n // (tp * pp * cp)
                if batch % dp:
                    continue
                node = max(1, cluster.domain // (tp * cp))
                shards = [(0, 1)] if dp == 1 else [(0, 1), (1, dp), (3, dp)]
                if dp > 1 and 1 < node < dp and dp % node == 0:
                    shards.append((3, node))  # state sharded inside a domain, replicas outside
                for zero, shard in shards:
                    for schedule, virtual in _schedules(pp, model.layers):
                        rows.append((tp, pp, cp, dp, shard, zero, virtual, schedule))
    return np.array(rows, dtype=float).reshape(-1, 8)


def _schedules(pp: int, layers: int) -> list[tuple[int, int]]:
    if pp == 1:
        return [(0, 1)]
    interleaved = [(2, v) for v in range(2, MAX_VIRTUAL + 1) if pp * v <= layers]
    v_shaped = [(4, 2)] if 2 * pp <= layers else []
    return [(1, 1), (3, 1), *interleaved, *v_shaped]


def _workload(question: Question, cluster: Cluster, groups: Array) -> Workload:
    """The groups as a workload with one sequence per micro-batch and nothing recomputed."""
    model = question.model
    assert model.kv_heads is not None
    assert model.head_dim is not None
    part = cluster.part
    if question.dtype not in part.peak_flops_per_s:
        raise UsageError(
            f"{part.id} has no {question.dtype}", where="precision", do=f"use {' or '.join(part.peak_flops_per_s)}"
        )
    tp, pp, cp, dp, shard, zero, virtual, schedule = groups.T
    split = np.where(schedule >= 3, SPLIT_BACKWARD, 1.0)
    constant = {
        "layers": model.layers,
        "hidden": model.hidden_size,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "ffn": model.ffn_size,
        "vocab": question.vocab_size,
        "sequence": question.sequence_length,
        "gated": model.activation == "swiglu",
        "tied": model.tied_embeddings,
        "experts": 0,
        "topk": 0,
        "moe_ffn": model.ffn_size,
        "gpus": cluster.count,
        "ep": 1,
        "micro_batch": 1,
        "global_batch": question.batch_sequences,
        "recompute_layers": 0,
        "recompute_core": 0,
        "dtype": DTYPES.index(question.dtype),
        "flash": ENGINE.flash,
        "fused": True,  # plans compile each block
        "sequence_parallel": ENGINE.sequence_parallel,
        "overlap_tp": ENGINE.overlap_tp,
        "overlap_dp": ENGINE.overlap_dp,
        "blocking_p2p": ENGINE.blocking_p2p,
        "balanced": ENGINE.balanced,
        "grad_bytes": ENGINE.grad_bytes,
        "grad_copy_bytes": ENGINE.grad_copy_bytes,
        "master_bytes": ENGINE.master_bytes,
        "logits_bytes": ENGINE.logits_bytes,
        "host_scale": ENGINE.launched,
        "ethernet": cluster.network == "cloud",
        **machine_fields(part, question.dtype, cluster.per_node, cluster.nic_bytes_per_s),
        "link_bytes_per_s": cluster.link_bytes_per_s,
        "domain": cluster.domain,
    }
    size = len(groups)
    columns = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "shard_ranks": np.maximum(shard, 1.0), "zero": zero}
    columns |= {"vpp": virtual, "bubble_share": split}
    return Workload(**columns, **{k: np.broadcast_to(np.float64(v), size) for k, v in constant.items()})


def _nearest(question: Question, cluster: Cluster) -> str:
    counts = [n for n in range(max(1, cluster.count // 2), 2 * cluster.count + 1) if n != cluster.count]
    good = sorted(counts, key=lambda n: abs(n - cluster.count))
    for n in good:
        if len(_groups(question, cluster.resized(n))):
            return str(n)
    return "other"


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _powers(limit: int) -> list[int]:
    return [2**i for i in range(limit.bit_length()) if limit % 2**i == 0]
