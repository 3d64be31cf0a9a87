"""The faults that strike a job, in order: of any node, more of repeat offenders and of young nodes, and spot losses."""

from dataclasses import dataclass

import numpy as np

from argosy.simulator.arrivals import Arrivals, draw
from argosy.simulator.failures import DAY_S, Failures, Fault
from argosy.simulator.job import Job
from argosy.simulator.nodes import Nodes

_ANY, _OFFENDER, _INFANT, _SPOT, _WHO = range(5)
"""Purposes of random draws."""


@dataclass(frozen=True)
class Strike:
    """A fault at a place of the job; `fault` is None when the owner takes spot capacity back."""

    t_s: float
    place: int
    fault: Fault | None
    dice: float
    """Uniform, for a time that is exponential."""
    normal: float


class Strikes:
    """All points at which something may happen; whether it does depends on the machines at that moment."""

    def __init__(self, failures: Failures, job: Job, seed: int, horizon_s: float):
        self._failures = failures
        nodes, pool = job.nodes, job.nodes + job.spares
        offenders = round(failures.offender_share * pool)
        extra = failures.offender_factor - 1
        settled = failures.rate_per_node_s / (1 + failures.offender_share * extra)
        youngest = failures.hazard(0.0)
        spot_per_s = job.spot.preemptions_per_day / DAY_S if job.spot else 0.0
        streams = [
            draw(seed, _ANY, settled * nodes, horizon_s),
            draw(seed, _OFFENDER, settled * extra * offenders, horizon_s),
            draw(seed, _INFANT, settled * (youngest - 1) * nodes, horizon_s),
            draw(seed, _SPOT, spot_per_s, horizon_s),
        ]
        kinds = np.repeat(range(len(streams)), [len(stream) for stream in streams])
        points = Arrivals(
            np.concatenate([s.time_s for s in streams]),
            np.concatenate([s.uniform for s in streams]),
            np.concatenate([s.normal for s in streams]),
        )
        order = np.argsort(points.time_s, kind="stable")
        self._time_s = points.time_s[order].tolist()
        self._uniform = points.uniform[order].tolist()
        self._normal = points.normal[order, 0].tolist()
        self._stream = kinds[order].tolist()
        self._next = 0
        self._youngest = youngest
        self._age_s = failures.age_days * DAY_S
        self._cumulative = np.cumsum([fault.share for fault in failures.faults]).tolist()
        self._nodes = nodes
        self._domain = job.spot.nodes if job.spot else 1
        who = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _WHO))))
        self._offenders = who.permutation(pool)[:offenders].tolist() if offenders else []
        self._cured: set[int] = set()

    def peek_s(self) -> float:
        """When the next point is; without end when there is none."""
        return float(self._time_s[self._next]) if self._next < len(self._time_s) else float("inf")

    def replaced(self, machine: int) -> None:
        """This number is another machine now, no offender."""
        self._cured.add(machine)

    def pop(self, machines: Nodes) -> Strike | None:
        """The next point, if it strikes anything."""
        i, self._next = self._next, self._next + 1
        t_s, (where, which, dice) = self._time_s[i], self._uniform[i]
        stream = self._stream[i]
        if stream == _SPOT:
            first = min(int(where * self._nodes), self._nodes - self._domain)
            return Strike(t_s, first, None, dice, self._normal[i]) if first < machines.active else None
        place: int | None = int(where * self._nodes)
        if stream == _OFFENDER:
            machine = self._offenders[int(where * len(self._offenders))]
            place = None if machine in self._cured else machines.place_of(machine)
        if place is None or place >= machines.active or machines.at[place] < 0:
            return None
        if stream == _INFANT:
            born_s = machines.born_s.get(machines.at[place])
            hazard = self._failures.hazard(t_s + self._age_s if born_s is None else t_s - born_s)
            if dice * (self._youngest - 1) >= hazard - 1:
                return None
        last = len(self._cumulative) - 1
        kind = next((k for k, upto in enumerate(self._cumulative) if which < upto), last)
        return Strike(t_s, place, self._failures.faults[kind], dice, self._normal[i])
