"""Jobs and faults for tests of the simulator: small, with round times."""

from collections.abc import Sequence
from dataclasses import replace

from argosy.simulator.failures import DAY_S, Failures, Fault, preset, with_kind
from argosy.simulator.job import Job, SaveTimes, Spot, restart_phases, save_times
from argosy.simulator.nodes import Nodes
from argosy.simulator.scenario import Scenario
from argosy.simulator.strikes import Strike

STORAGE = save_times(10.0, 60.0, 60.0)
WITH_MEMORY = STORAGE | {"memory": SaveTimes(0.1, 0.5, 5.0)}
JOB = Job(1024, 6.0, STORAGE, restart_phases(1024), spares=12, tokens_per_step=8192 * 64)
OFTEN = preset("llama3").scaled(15)
"""A failure every 3.3 h on 1,024 GPUs."""

KINDS: dict[str, Scenario] = {
    "spares": Scenario(JOB, OFTEN, 3 * DAY_S),
    "elastic": Scenario(replace(JOB, spares=0, batch_sequences=1024), OFTEN, 3 * DAY_S),
    "evaluations": Scenario(replace(JOB, eval_every_steps=50, eval_s=20.0), OFTEN, 3 * DAY_S),
    "memory": Scenario(replace(JOB, saves=WITH_MEMORY), OFTEN, 2 * DAY_S),
    "groups": Scenario(replace(JOB, replica_groups=8), OFTEN, 3 * DAY_S),
    "groups, no spares": Scenario(replace(JOB, replica_groups=8, spares=0), OFTEN, 3 * DAY_S),
    "people": Scenario(replace(JOB, spares=1), OFTEN.scaled(3), 3 * DAY_S),
    "spot": Scenario(replace(JOB, spot=Spot(8, 120.0, 2)), OFTEN, 3 * DAY_S),
    "elastic spot": Scenario(replace(JOB, spares=0, batch_sequences=1024, spot=Spot(8, 5.0, 2)), OFTEN, 3 * DAY_S),
    "all kinds": Scenario(
        replace(JOB, spares=40, saves=WITH_MEMORY),
        with_kind(with_kind(with_kind(OFTEN, "slow", 20.0), "domain", 10.0), "storage", 20.0),
        2 * DAY_S,
    ),
    "work": Scenario(replace(JOB, steps=20_000), OFTEN, 30 * DAY_S),
    "nothing survives": Scenario(replace(JOB, spares=0), OFTEN.scaled(2000), DAY_S),
}


class At:
    """Faults at given moments, all at the first place, in the place of random ones."""

    def __init__(self, times_s: Sequence[float], fault: Fault):
        self._left = sorted(times_s)
        self._fault = fault

    def peek_s(self) -> float:
        return self._left[0] if self._left else float("inf")

    def pop(self, machines: Nodes) -> Strike | None:
        return Strike(self._left.pop(0), 0, self._fault, 0.5, 0.0)

    def replaced(self, machine: int) -> None: ...


def every_node(per_node_day: float, detect_s: float = 0.0) -> Failures:
    """Processes that die, nothing else."""
    return Failures("test", per_node_day, (Fault("crash", "process", 1.0, detect_s),))
