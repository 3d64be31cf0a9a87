"""The job that is simulated: its size, its step, what saving and restarting take, and what it costs."""

from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from argosy.errors import UsageError
from argosy.policy.view import Tier

Phases = dict[str, float]
"""Seconds by phase: `reschedule`, and the start-up phases of :mod:`argosy.journal.phys` without their prefix."""

START: Phases = {
    "process_start": 5.0,
    "import": 10.0,
    "rendezvous": 5.0,
    "comm_init": 5.0,
    "model_init": 10.0,
    "data_seek": 5.0,
}
"""Start-up of all ranks once machines are there. `comm_init`: arXiv:2402.15627, below 5 s; the others assumed."""

_SIZES = (2048, 4096, 8192, 16384)
_IN_PLACE_S = (46.0, 51.0, 54.0, 65.0)
_REQUEUE_S = (454.0, 545.0, 635.0, 768.0)
"""Scheduling of a job on so many GPUs, kept in place and queued anew: arXiv:2509.16293 table 7."""


@dataclass(frozen=True)
class SaveTimes:
    """One tier of checkpoints."""

    block_s: float
    """The step waits so long."""
    durable_s: float
    """From the start of a save until it counts; at least `block_s`."""
    restore_s: float


@dataclass(frozen=True)
class Price:
    """What one GPU costs per hour, and from when; a list of them is a price over time."""

    per_gpu_hour: Fraction
    from_s: float = 0.0


@dataclass(frozen=True)
class Spot:
    """Capacity that its owner may take back."""

    preemptions_per_day: float
    """Of the whole job."""
    notice_s: float = 120.0
    nodes: int = 1
    """Taken at once."""
    away_s: float = 3600.0
    """Mean time until there is capacity again."""


@dataclass(frozen=True)
class Job:
    """A training job on `gpus` GPUs. Times are of the undisturbed job at full size."""

    gpus: int
    step_time_s: float
    saves: dict[Tier, SaveTimes]
    restart: dict[str, Phases]
    """By rung of the recovery ladder: from verdict to the first step, without loading the state."""
    per_node: int = 8
    steps: int | None = None
    """Work to do; None: train until the time is over."""
    step_phys: dict[str, float] = field(default_factory=lambda: {"forward": 1 / 3, "backward": 2 / 3})
    """Share of a step in each phase (names of :mod:`argosy.journal.phys`)."""
    eval_every_steps: int = 0
    eval_s: float = 0.0
    tokens_per_step: int = 0
    batch_sequences: int | None = None
    """Sequences of a global batch, which an elastic job deals out evenly; None: the job keeps its size."""
    model_ranks: int = 1
    """Ranks that share one copy of the data."""
    spares: int = 0
    """Nodes that wait, paid."""
    refill_s: float | None = None
    """After which a broken node has been replaced; None: when it is repaired."""
    person_s: float = 1800.0
    """Until a person has seen to a job that stopped for one."""
    replica_groups: int = 1
    rejoin_s: float = 1.0
    """All wait so long when a group comes back."""
    domains_apart: bool = False
    """Copies in memory are kept in another rack, so that they outlive the loss of one."""
    prices: tuple[Price, ...] = ()
    currency: str = "USD"
    spot: Spot | None = None

    def __post_init__(self) -> None:
        def check(wrong: bool, what: str, do: str, where: str = "job") -> None:
            if wrong:
                raise UsageError(what, where=where, do=do)

        check(self.gpus < 1 or self.per_node < 1, f"{self.gpus} GPUs on nodes of {self.per_node}", "use 1 or more")
        check(
            self.gpus % self.per_node != 0,
            f"{self.gpus} GPUs do not fill nodes of {self.per_node}",
            f"use a multiple of {self.per_node}, or another --per-node",
            "--gpus",
        )
        check(not self.step_time_s > 0, f"a step of {self.step_time_s:g} s", "give a time above 0", "--step-time")
        check(
            self.spares < 0 or self.spares > self.nodes,
            f"{self.spares} spare nodes for a job on {self.nodes}",
            f"use 0 to {self.nodes}: more spares than nodes never pay",
            "--spares",
        )
        for price in self.prices:
            check(
                price.per_gpu_hour < 0,
                f"a price of {float(price.per_gpu_hour):g} is below 0",
                "write 0 for free",
                "--price",
            )
        check(
            self.replica_groups < 1 or self.nodes % self.replica_groups != 0,
            f"{self.nodes} nodes do not divide into {self.replica_groups} replica groups",
            "use a divisor of the number of nodes",
            "--groups",
        )
        times = [*(t for save in self.saves.values() for t in (save.block_s, save.durable_s, save.restore_s))]
        times += [t for phases in self.restart.values() for t in phases.values()]
        times += [self.eval_s, self.person_s, self.rejoin_s, self.refill_s or 0.0]
        check(any(not 0 <= t < float("inf") for t in times), "a time is negative or without end", "use 0 or more")
        for tier, save in self.saves.items():
            check(
                save.durable_s < save.block_s,
                f"a save to {tier} counts {save.durable_s:g} s after its start but blocks {save.block_s:g} s",
                "let it count when it no longer blocks, or later",
            )
        check(abs(sum(self.step_phys.values()) - 1) > 1e-6, "the phases of a step do not sum to it", "use shares")
        if self.spot:
            check(
                self.spot.preemptions_per_day < 0 or self.spot.away_s <= 0 or self.spot.notice_s < 0,
                "spot capacity with a negative time or rate",
                "use 0 or more",
                "--spot",
            )
            check(
                not 0 < self.spot.nodes <= self.nodes,
                f"{self.spot.nodes} nodes taken at once",
                "use 1 to all",
                "--spot",
            )

    @property
    def nodes(self) -> int:
        return self.gpus // self.per_node

    @property
    def devices(self) -> int:
        """All that is paid for: GPUs of the job and of its spares."""
        return self.gpus + self.spares * self.per_node

    def restart_s(self, rung: str, tier: Tier = "storage") -> float:
        """From verdict to the first step, with loading from `tier`."""
        return sum(self.restart[rung].values()) + self.saves[tier].restore_s

    def with_restart(self, seconds: float) -> "Job":
        """The same with `seconds` between verdict and first step on every rung that starts processes anew."""
        return replace(
            self, restart={rung: _stretched(phases, max(0.0, seconds)) for rung, phases in self.restart.items()}
        )

    def restarting_sooner(self, seconds: float) -> "Job":
        """The same with every rung shorter by `seconds`, as far as it is that long."""
        restart = {
            rung: _stretched(phases, max(0.0, sum(phases.values()) - seconds)) for rung, phases in self.restart.items()
        }
        return replace(self, restart=restart)

    def restart_times(self, factor: float) -> "Job":
        """The same with every restart phase `factor` times as long."""
        longer = {rung: {name: s * factor for name, s in phases.items()} for rung, phases in self.restart.items()}
        return replace(self, restart=longer)

    def price_per_s(self, now_s: float = 0.0, devices: int | None = None) -> Fraction | None:
        """Of all that is paid, at a moment; None when it is not known."""
        known = [price.per_gpu_hour for price in self.prices if price.from_s <= now_s]
        count = self.devices if devices is None else devices
        return known[-1] * count / 3600 if known else None


def restart_phases(gpus: int) -> dict[str, Phases]:
    """Restart phases at this scale, per rung."""
    in_place_s, requeue_s = _at_scale(gpus, _IN_PLACE_S), _at_scale(gpus, _REQUEUE_S)
    return {
        "rebuild_groups": {"rendezvous": START["rendezvous"], "comm_init": START["comm_init"]},
        "restart_workers": {"reschedule": in_place_s, **START},
        "use_spare": {"reschedule": in_place_s, **START},
        "shrink": {"reschedule": in_place_s, **START},
        "grow": {"reschedule": in_place_s, **START},
        "roll_back": {"reschedule": in_place_s, **START},
        "requeue": {"reschedule": requeue_s, **START},
    }


def save_times(block_s: float, durable_s: float | None = None, restore_s: float = 60.0) -> dict[Tier, SaveTimes]:
    """One tier on storage."""
    return {"storage": SaveTimes(block_s, max(block_s, durable_s or 0.0), restore_s)}


def _at_scale(gpus: int, measured_s: tuple[float, ...]) -> float:
    """Interpolated over the logarithm of the size; the last slope goes on, the first value is the least."""
    at = np.log2(gpus)
    sizes = np.log2(_SIZES)
    if at > sizes[-1]:
        return float(measured_s[-1] + (measured_s[-1] - measured_s[-2]) * (at - sizes[-1]))
    return float(np.interp(at, sizes, measured_s))


def _stretched(phases: Phases, seconds: float) -> Phases:
    """The phases in proportion, so that they take `seconds` together."""
    total = sum(phases.values())
    return {name: s * seconds / total for name, s in phases.items()} if total else {"reschedule": seconds}
