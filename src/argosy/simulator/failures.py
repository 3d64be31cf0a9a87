"""What can go wrong with a cluster, how often, and how long it takes until somebody knows and until it is mended."""

import math
import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

from argosy.errors import UsageError

DAY_S = 86_400.0
HOUR_S = 3_600.0

Class = Literal["process", "hang", "hardware", "domain", "storage", "slow", "silent"]
"""process: a rank dies, its machine is fine · hang: the same, found by a timeout · hardware: a machine is lost ·
domain: all machines of a rack or switch are lost · storage: nothing can be saved or loaded for a while ·
slow: a machine holds the others up until it is found · silent: a machine computes wrongly until it is found."""

HARDWARE: frozenset[Class] = frozenset(("hardware", "domain", "slow", "silent"))
"""The same machine would fail again."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault; it strikes a node at random."""

    name: str
    kind: Class
    share: float
    """Of all faults."""
    detect_s: float
    """From fault to verdict; the mean, for `slow` and `silent` exponential."""
    repair_median_s: float = 0.0
    repair_sigma: float = 0.0
    """Repair times are log-normal: people, queues and spare parts make the tail."""
    slowdown: float = 0.0
    """Share by which steps take longer."""

    @property
    def repair_mean_s(self) -> float:
        """Of a log-normal time: median · e^(sigma²/2)."""
        return self.repair_median_s * math.exp(self.repair_sigma**2 / 2)


@dataclass(frozen=True)
class Failures:
    """A failure process: Poisson over nodes, faster for young nodes and for repeat offenders."""

    title: str
    rate_per_node_day: float
    """Mean over all nodes, settled."""
    faults: tuple[Fault, ...]
    source: str = ""
    offender_share: float = 0.0
    """Share of nodes that fail `offender_factor` times as often as the others."""
    offender_factor: float = 1.0
    infant_shape: float = 1.0
    """Weibull shape of a node's hazard until it is `settled_days` old; below 1 young nodes fail more often."""
    settled_days: float = 30.0
    age_days: float = 1e9
    """How old the nodes are when the job begins."""
    domain_nodes: int = 16
    """Nodes that a fault of class `domain` takes."""
    factor: float = field(default=1.0, kw_only=True)
    """Multiplies the rate: what-if."""

    def __post_init__(self) -> None:
        def wrong(what: str, do: str) -> UsageError:
            return UsageError(what, where="failures", do=do)

        if self.rate_per_node_day < 0 or self.factor < 0:
            raise wrong("a failure rate is below 0", "write 0 for none")
        if self.rate_per_node_day and not self.faults:
            raise wrong("failures have a rate but no kinds", "name at least one")
        if not 0 <= self.offender_share <= 1 or self.offender_factor < 1:
            raise wrong("repeat offenders need a share in 0 … 1 and a factor of 1 or more", "leave them out")
        if not 0 < self.infant_shape <= 1:
            raise wrong(f"infant_shape {self.infant_shape:g} is not in 0 … 1", "1 means that age does not matter")
        if self.settled_days <= 0 or self.domain_nodes < 1 or self.age_days < 0:
            raise wrong("settled_days, age_days and domain_nodes must be above 0", "leave them out")
        for fault in self.faults:
            if min(fault.share, fault.detect_s, fault.repair_median_s, fault.repair_sigma, fault.slowdown) < 0:
                raise wrong(f"fault {fault.name!r} has a negative time or share", "write 0 or more")

    @property
    def rate_per_node_s(self) -> float:
        return self.rate_per_node_day * self.factor / DAY_S

    def per_s(self, nodes: int) -> float:
        """Failures of a job on `nodes` nodes per second."""
        return nodes * self.rate_per_node_s

    def scaled(self, factor: float) -> "Failures":
        """The same, `factor` times as often."""
        return replace(self, factor=self.factor * factor)

    def detected_in(self, factor: float) -> "Failures":
        """The same, found `factor` times as late."""
        return replace(self, faults=tuple(replace(f, detect_s=f.detect_s * factor) for f in self.faults))

    def repaired_in(self, factor: float) -> "Failures":
        """The same, mended `factor` times as slowly."""
        return replace(self, faults=tuple(replace(f, repair_median_s=f.repair_median_s * factor) for f in self.faults))

    def hazard(self, age_s: float) -> float:
        """How many times as often a node of this age fails as a settled one.

        Weibull: (age/settled)^(shape-1), held constant in its first hour, where it would be without bound.
        """
        settled_s = self.settled_days * DAY_S
        if age_s >= settled_s or self.infant_shape == 1:
            return 1.0
        return float((max(age_s, HOUR_S) / settled_s) ** (self.infant_shape - 1))


def exponential(mtbf_s: float, nodes: int, fault: Fault | None = None) -> Failures:
    """One kind of fault that strikes a job on `nodes` nodes every `mtbf_s` seconds on average."""
    kind = fault or Fault("failure", "process", 1.0, 0.0)
    return Failures(f"one failure every {mtbf_s:g} s", DAY_S / mtbf_s / nodes, (kind,))


NONE = Failures("no failures", 0.0, ())


def presets() -> tuple[str, ...]:
    """Names of the published failure processes."""
    return tuple(_table()["preset"])


def preset(name: str) -> Failures:
    """A published failure process by name, or ``none``. Raises UsageError for another name."""
    if name == "none":
        return NONE
    row = _table()["preset"].get(name)
    if row is None:
        raise UsageError(
            f"no failures are known as {name!r}", where="--failures", do=f"use {', '.join(presets())} or none"
        )
    total = sum(fault["count"] for fault in row["faults"])
    rate = row.get("rate_per_1000_node_days")
    per_node_day = total / row["nodes"] / row["days"] if rate is None else rate / 1000
    return Failures(
        title=row["title"],
        rate_per_node_day=per_node_day,
        faults=tuple(_fault(fault["name"], fault["class"], fault["count"] / total) for fault in row["faults"]),
        source=row["source"],
        offender_share=row.get("offender_share", 0.0),
        offender_factor=row.get("offender_factor", 1.0),
    )


def with_kind(failures: Failures, kind: Class, per_1000_node_days: float) -> Failures:
    """`failures` and faults of one more class, which come on top."""
    if per_1000_node_days < 0:
        raise UsageError("a failure rate is below 0", where="failures", do="write 0 for none")
    if not per_1000_node_days:
        return failures
    more = per_1000_node_days / 1000
    rate = failures.rate_per_node_day + more
    old = tuple(replace(f, share=f.share * failures.rate_per_node_day / rate) for f in failures.faults)
    return replace(failures, rate_per_node_day=rate, faults=(*old, _fault(kind, kind, more / rate)))


def _fault(name: str, kind: str, share: float) -> Fault:
    assert kind in get_args(Class), kind
    times = {key: value for key, value in _table()["class"][kind].items() if key != "source"}
    return Fault(name=name, kind=kind, share=share, **times)  # type: ignore[arg-type]


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(resources.files("argosy.simulator").joinpath("presets.toml").read_text("utf-8"))
