"""What the simulator says where the answer is known: closed forms, and outcomes that were published.

A published outcome can be met only with assumptions that its paper does not state; each case names them.
"""

from dataclasses import dataclass, replace

from argosy.policy.recovery import RecoveryPolicy
from argosy.policy.save import daly_interval_s
from argosy.simulator.check import daly_share, replica_share
from argosy.simulator.failures import DAY_S, exponential, preset
from argosy.simulator.job import Job, SaveTimes, restart_phases, save_times
from argosy.simulator.replicate import Interval, replicate
from argosy.simulator.scenario import Scenario

TOLERANCE = 0.005
"""How far a simulation may be from a closed form, as a share of it."""
ALWAYS_RESTART = RecoveryPolicy(rungs=("restart_workers",), restarts_limit=10**9)
"""Closed forms know nothing of crash loops that wait for a person."""


@dataclass(frozen=True)
class Case:
    """A scenario whose useful share is known."""

    name: str
    scenario: Scenario
    low: float
    """What it must lie between."""
    high: float
    expected: float | None
    """What a closed form says; None: only the bounds were published."""
    source: str
    assumed: str
    replications: int = 8
    start_s: float = 0.0
    """The form leaves out the first start."""


@dataclass(frozen=True)
class Verdict:
    case: Case
    useful: Interval

    @property
    def holds(self) -> bool:
        """Within the bounds; those that were published, up to the simulation's own statistical error."""
        error = 0.0 if self.case.expected is not None else self.useful.half
        return self.case.low - error <= self.useful.mean <= self.case.high + error


def run(case: Case, seed: int = 0) -> Verdict:
    """Simulate a case; effective share of the job's own devices, without the first start."""
    sample = replicate(case.scenario, case.replications, seed)
    share = sample.kept_s / ((sample.wall_s - case.start_s) * case.scenario.job.gpus)
    return Verdict(case, Interval.of(share))


def closed_forms() -> list[Case]:
    """Daly's exact form, and that of replica groups."""
    known = ((11_135.0, 10.0, 600.0), (1_825.0, 1.0, 60.0), (1_000.0, 20.0, 200.0))
    return [*(daly(*times) for times in known), *(replicas(groups) for groups in (8, 32))]


def daly(mtbf_s: float, save_s: float, restart_s: float, mtbfs: int = 4_000) -> Case:
    """A job that restarts whole, at the best interval, over `mtbfs` mean times between failures."""
    step_s = mtbf_s / 20_000
    phases = {rung: {"reschedule": restart_s} for rung in restart_phases(8)}
    job = Job(8, step_s, save_times(save_s, restore_s=0.0), phases)
    interval_s = round(daly_interval_s(save_s, mtbf_s) / step_s) * step_s
    expected = daly_share(interval_s, save_s, restart_s, mtbf_s)
    return Case(
        f"Daly: MTBF {mtbf_s:g} s, save {save_s:g} s, restart {restart_s:g} s",
        Scenario(job, exponential(mtbf_s, 1), mtbfs * mtbf_s, replaced=(ALWAYS_RESTART,)),
        *_around(expected),
        "Daly 2006, exact form",
        "the form's own",
        start_s=restart_s,
    )


def replicas(groups: int) -> Case:
    """Replica groups that are lost one at a time, as torchft and FT-HSDP run."""
    rate_per_s, nodes, step_s = 1 / 20_000.0, 64, 0.01
    job = Job(
        nodes * 8,
        step_s,
        save_times(0.0, restore_s=0.0),
        restart_phases(nodes * 8) | {"requeue": {}},
        replica_groups=groups,
    )
    stall_s = sum(job.restart["rebuild_groups"].values()) + job.rejoin_s + step_s / 2
    # what the others wait for counts as stall, so only the rest counts as away
    away_s = sum(job.restart["restart_workers"].values()) + job.rejoin_s - (stall_s - step_s / 2)
    expected = replica_share(rate_per_s, stall_s, away_s, groups)
    scenario = Scenario(job, exponential(1 / rate_per_s, nodes), 2_000 / rate_per_s, {"save.every_s": 1e6})
    return Case(
        f"{groups} replica groups, a loss every {1 / rate_per_s:g} s",
        scenario,
        *_around(expected),
        "1 - λ (stall + away / G), research note 3.8",
        "rare failures",
    )


def published() -> list[Case]:
    """Outcomes of papers, each with what it takes to reach them."""
    llama = Job(16_384, 6.0, save_times(10.0, 60.0, 60.0), restart_phases(16_384), spares=16)
    rsc = Job(1_024, 6.0, save_times(1.0, 60.0, 60.0), restart_phases(1_024), spares=8).with_restart(1_140.0)
    meta = replace(llama, gpus=98_304, restart=restart_phases(98_304), spares=128)
    often = exponential(18 * 60.0, meta.nodes)
    return [
        Case(
            "Llama 3 405B: more than 90 % effective over 54 days",
            Scenario(llama, preset("llama3"), 54 * DAY_S),
            0.90,
            1.0,
            None,
            "arXiv:2407.21783",
            "saves block 10 s and count after 60 s, restart in place in 105 s, 16 spare nodes, repair in 6 h",
        ),
        Case(
            "RSC-1, 1,024 GPUs at hourly saves: 0.85 to 0.90",
            Scenario(rsc, exponential(7.9 * 3600, 128), 60 * DAY_S, {"save.every_s": 3600.0}),
            0.85,
            0.90,
            None,
            "arXiv:2410.21680",
            "the measured 7.9 h between failures (its node rate alone says 28.8 h), 20 min to restart, no queue",
        ),
        Case(
            "100,000 GPUs, a failure every 18 min, whole restarts: 44 %",
            Scenario(meta.with_restart(540.0), often, 10 * DAY_S, replaced=(ALWAYS_RESTART,)),
            0.40,
            0.52,
            None,
            "arXiv:2602.00277",
            "10 min to restart, saves block 10 s at Daly's interval",
        ),
        Case(
            "the same with replica groups: 80 %",
            Scenario(replace(meta, replica_groups=48, restart=_groups_like_ft_hsdp(meta)), often, 10 * DAY_S),
            0.77,
            0.86,
            None,
            "arXiv:2602.00277",
            "48 groups, all wait 3 min at each loss, a group is away 13 min",
        ),
        Case(
            "ByteRobust, dense job: up to 97 % over 3 months",
            Scenario(
                replace(
                    llama,
                    gpus=9_600,
                    saves={"storage": SaveTimes(6.8, 60.0, 60.0), "memory": SaveTimes(0.04, 1.0, 10.0)},
                    restart=restart_phases(9_600),
                ),
                preset("byterobust"),
                90 * DAY_S,
            ),
            0.96,
            1.0,
            None,
            "arXiv:2509.16293",
            "copies in peers' memory that block 0.04 s, restart in place in 95 s",
        ),
    ]


def _around(expected: float) -> tuple[float, float, float]:
    return expected * (1 - TOLERANCE), expected * (1 + TOLERANCE), expected


def _groups_like_ft_hsdp(job: Job) -> dict[str, dict[str, float]]:
    return job.restart | {"rebuild_groups": {"rendezvous": 180.0}, "restart_workers": {"reschedule": 780.0}}
