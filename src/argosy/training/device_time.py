"""What the device really did in a profiled step, as sums over exact intervals: no trace is kept.

The recorder says what the *host* was in. Whether the device worked meanwhile is known from the profiler alone. This
module lays one over the other: each host phase is divided among what the device did in it. Streams are united before
anything is summed, so overlap is counted once and only *exposed* communication and copies remain.

On a CPU the host is the device: an operation works, and between two operations nothing does. On CUDA kernels work,
whatever the host is in meanwhile.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from argosy.journal.intervals import EMPTY, intersect, length, subtract, union
from argosy.journal.phys import MATH, comm

Ints = NDArray[np.int64]
Interval = tuple[int, int]

COPY, GAP, SYNC, ALLOCATOR, RECOMPUTE = "h2d_copy", "launch_gap", "sync_point", "allocator", "recompute"

LONG_NS = 1_000_000
"""A gap between two operations that no dispatching explains."""

_SYNCHRONISES = re.compile(r"cuda(Stream|Device|Event)Synchronize|cudaMemcpy(?!.*Async)|hip\w*Synchronize")
_ALLOCATES = re.compile(r"(cuda|hip)(Malloc|Free|HostAlloc)")


@dataclass
class Activity:
    """What a profile saw, on the clock of the recorder."""

    math: list[Interval] = field(default_factory=list)
    """Operations on a CPU, kernels on a device."""
    copies: list[Interval] = field(default_factory=list)
    collectives: dict[str, list[Interval]] = field(default_factory=lambda: defaultdict(list))
    """Kernels of collectives by axis; on a CPU the recorder knows better."""
    syncs: list[Interval] = field(default_factory=list)
    """The host waited for the device."""
    allocations: list[Interval] = field(default_factory=list)
    """The host waited for device memory."""
    forward: list[tuple[int, int]] = field(default_factory=list)
    """(begin, autograd number) of differentiable operations."""
    backward: list[tuple[int, int, int]] = field(default_factory=list)
    """(begin, end, autograd number) of their gradients."""
    events: int = 0

    def runtime_call(self, name: str, at: Interval) -> None:
        """A call of the device's runtime by the host."""
        if _SYNCHRONISES.match(name):
            self.syncs.append(at)
        elif _ALLOCATES.match(name):
            self.allocations.append(at)


Division = dict[tuple[str, str], int]
"""(host phase, what the device did in it) → ns."""


def divide(host: dict[str, Ints], seen: Activity, repeated: Ints, *, on_cpu: bool, off_cpu_ns: int = 0) -> Division:
    """Divide the `host` phases (sets by name) among what the device did.

    `repeated` are forward passes of modules inside backward. On a CPU, `off_cpu_ns` of the math phases went without
    a processor; the journal has that already, so the division is of the rest of them.
    """
    parts = _on_cpu(host, seen, repeated, off_cpu_ns) if on_cpu else _on_device(host, seen, repeated)
    return {pair: ns for pair, ns in parts.items() if ns}


def _on_cpu(host: dict[str, Ints], seen: Activity, repeated: Ints, off_cpu_ns: int) -> Division:
    busy = union(seen.math)
    idle = {phase: subtract(host.get(phase, EMPTY), busy) for phase in MATH}
    idle_ns = {phase: length(gaps) for phase, gaps in idle.items()}
    # Dispatch leaves gaps of microseconds. Who slept or was stopped left a long one: take what had no processor from
    # these first, and what is more than they hold from the operations it interrupted.
    long_ns = {phase: length(gaps[gaps[:, 1] - gaps[:, 0] >= LONG_NS]) for phase, gaps in idle.items()}
    for phase, part in _shares(min(off_cpu_ns, sum(long_ns.values())), long_ns).items():
        idle_ns[phase] -= part
    busy_ns = {phase: length(host.get(phase, EMPTY)) - length(idle[phase]) for phase in MATH}
    for phase, part in _shares(max(0, off_cpu_ns - sum(long_ns.values())), busy_ns).items():
        busy_ns[phase] = max(0, busy_ns[phase] - part)
    again_ns = min(length(intersect(intersect(host.get("backward", EMPTY), repeated), busy)), busy_ns["backward"])
    busy_ns["backward"] -= again_ns
    parts = {(phase, phase): ns for phase, ns in busy_ns.items()}
    parts |= {(phase, GAP): ns for phase, ns in idle_ns.items()}
    return parts | {("backward", RECOMPUTE): again_ns}


def _on_device(host: dict[str, Ints], seen: Activity, repeated: Ints) -> Division:
    """Kernels are useful whatever the host is in: what it waits for meanwhile costs nothing."""
    taken = union(seen.math)
    activities: list[tuple[str, Ints]] = []
    for name, intervals in (*((comm(axis), spans) for axis, spans in seen.collectives.items()), (COPY, seen.copies)):
        exposed = subtract(union(intervals), taken)
        activities.append((name, exposed))
        taken = union(np.concatenate((taken, exposed)))
    busy, drained, allocating = union(seen.math), _after(seen.syncs, taken), union(seen.allocations)
    parts: Division = {}
    for phase, moments in host.items():
        math = intersect(moments, busy)
        again_ns = length(intersect(math, repeated)) if phase == "backward" else 0
        parts["backward", RECOMPUTE] = parts.get(("backward", RECOMPUTE), 0) + again_ns
        parts[phase, phase if phase in MATH else "forward"] = length(math) - again_ns
        for name, exposed in activities:
            parts[phase, name] = parts.get((phase, name), 0) + length(intersect(moments, exposed))
        idle = subtract(moments, taken)
        if phase not in MATH:
            parts[phase, phase] = parts.get((phase, phase), 0) + length(idle)
            continue
        waited = intersect(idle, allocating)
        idle = subtract(idle, allocating)
        parts[phase, ALLOCATOR] = length(waited)
        parts[phase, SYNC] = length(intersect(idle, drained))
        parts[phase, GAP] = length(subtract(idle, drained))
    return parts


def _shares(whole: int, weights: dict[str, int]) -> dict[str, int]:
    """`whole` divided by weight; nothing where there is no weight."""
    total = sum(weights.values())
    return {name: whole * weight // total if total else 0 for name, weight in weights.items()}


def _after(syncs: Sequence[Interval], taken: Ints) -> Ints:
    """Idle gaps of the device that begin while the host waits for it: its queue drained because of the wait."""
    if not len(taken) or not syncs:
        return EMPTY
    gaps = np.stack((taken[:-1, 1], taken[1:, 0]), axis=1)
    waits = union(syncs)
    at = np.searchsorted(waits[:, 0], gaps[:, 0], "right") - 1
    return gaps[(at >= 0) & (gaps[:, 0] <= waits[np.maximum(at, 0), 1])]


@dataclass
class ModuleTime:
    """One module in one step [ns]."""

    forward: int = 0
    backward: int = 0
    recompute: int = 0
    idle: int = 0
    """Host in the module's forward, device without work."""


def module_times(
    stretches: Iterable[tuple[str, int, int]], host: dict[str, Ints], seen: Activity
) -> dict[str, ModuleTime]:
    """Divide a step among modules. `stretches` say where the host was in forward passes; a gradient belongs to the
    module in which its operation was recorded. Meaningful where the host is the device."""
    times: dict[str, ModuleTime] = defaultdict(ModuleTime)
    listed = sorted(stretches, key=lambda stretch: stretch[1])
    busy = union(seen.math)
    by_module: dict[str, list[Interval]] = defaultdict(list)
    for name, begin, end in listed:
        by_module[name].append((begin, end))
    forward, backward = host.get("forward", EMPTY), host.get("backward", EMPTY)
    for name, intervals in by_module.items():
        mine = union(intervals)
        in_forward = intersect(mine, forward)
        row = times[name]
        row.forward = length(intersect(in_forward, busy))
        row.idle = length(in_forward) - row.forward
        row.recompute = length(intersect(intersect(mine, backward), busy))
    begins = np.array([begin for _, begin, _ in listed], np.int64)
    ends = np.array([end for _, _, end in listed], np.int64)
    owner: dict[int, str] = {}
    for at, number in seen.forward:
        row_ = int(np.searchsorted(begins, at, "right")) - 1
        if row_ >= 0 and at < ends[row_]:
            owner[number] = listed[row_][0]
    gradients: dict[str, list[Interval]] = defaultdict(list)
    for begin, end, number in seen.backward:
        if number in owner:
            gradients[owner[number]].append((begin, end))
    repeated = union([(begin, end) for _, begin, end in listed])
    for name, intervals in gradients.items():
        times[name].backward = length(subtract(intersect(union(intervals), backward), repeated))
    return dict(times)
