"""Why a model does not fit, and which knob lowers which term."""

from dataclasses import dataclass

import numpy as np

from argosy.errors import UsageError
from argosy.hardware.cluster import Cluster
from argosy.hardware.parts import GIB
from argosy.planner.memory import Memory, memory, reserved_bytes
from argosy.planner.question import Question
from argosy.planner.space import build_space

KNOBS = {
    "weights": "tp, pp, or fsdp with reshard_after_forward: all divide them",
    "gradients": "tp, pp or fsdp",
    "optimizer": "fsdp (zero 1 is enough): divides it by the data-parallel ranks",
    "activations": "recompute, a smaller micro-batch, tp or cp; fewer stages in flight",
    "logits": "tp, or a chunked loss",
    "buffers": "a smaller micro-batch or cp; prefetch 0",
}
"""What lowers each term of the memory."""


@dataclass(frozen=True)
class Term:
    """One part of a rank's peak."""

    name: str
    bytes: float
    knob: str


def terms(m: Memory, i: int) -> list[Term]:
    """The parts of case i's peak, largest first, with what lowers each."""
    parts = [Term(name, float(getattr(m, name)[i]), knob) for name, knob in KNOBS.items()]
    return sorted((t for t in parts if t.bytes > 0), key=lambda t: -t.bytes)


def why_not(question: Question, cluster: Cluster) -> tuple[str, str]:
    """(what stands in the way, what would do) for a model that fits in no layout."""
    space = build_space(question, cluster, prune=False)
    m = memory(space.workload)
    need = reserved_bytes(m.allocated)
    i = int(np.argmin(need))
    room = float(space.workload.memory_bytes[i])
    largest = terms(m, i)[0]
    count = cluster.count
    enough = None
    while count < 64 * cluster.count:
        count *= 2
        try:
            if len(build_space(question, cluster.resized(count))):
                enough = count
                break
        except UsageError:
            continue  # the batch cannot be dealt out to so many
    what = (
        f"{question.name} does not fit on {cluster.count} × {cluster.part.id}: the smallest layout needs "
        f"{need[i] / GIB:.1f} GiB of {room / GIB:.1f} GiB per accelerator, most of it {largest.name} "
        f"({largest.bytes / GIB:.1f} GiB)"
    )
    do = f"{largest.name}: {largest.knob}"
    return what, (f"use {enough} accelerators; " if enough else "use a part with more memory; ") + do
