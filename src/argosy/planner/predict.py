"""Predictions with an interval and the constraint that binds."""

from dataclasses import dataclass

import numpy as np

from argosy.planner.constants import Constants, fitted_constants
from argosy.planner.memory import Memory, memory, reserved_bytes, settle_recompute
from argosy.planner.step_time import StepTime, step_time
from argosy.planner.workload import Array, Workload

FITS, TIGHT, DOES_NOT_FIT = 0, 1, 2
TIGHT_SHARE = 0.92
"""A peak above this share of the memory fits only until something changes: another release, a longer batch."""

BINDING = {
    "compute": "compute",
    "tp_comm": "tensor-parallel transfers",
    "ep_comm": "expert dispatch",
    "cp_comm": "context-parallel transfers",
    "pp_comm": "stage transfers",
    "bubble": "pipeline bubble",
    "dp_comm": "gradient and parameter transfers",
    "optimizer": "optimizer and step overhead",
    "host": "kernel launches",
}


@dataclass(frozen=True)
class Prediction:
    """What the model says about each case; arrays of shape [N]."""

    workload: Workload
    """With the recompute share settled."""
    time: StepTime
    memory: Memory
    spread: float
    """Width of the interval: log predicted ÷ true lies within ±spread for about two cases of three."""

    @property
    def step_time_s(self) -> Array:
        return self.time.total

    @property
    def interval_s(self) -> tuple[Array, Array]:
        """Low and high end of the step time, about two cases of three."""
        return self.time.total * np.exp(-self.spread), self.time.total * np.exp(self.spread)

    @property
    def tokens_per_s_per_gpu(self) -> Array:
        w = self.workload
        return w.global_batch * w.sequence / (w.gpus * self.time.total)

    @property
    def peak_memory_bytes(self) -> Array:
        """Peak that the allocator of the worst rank reports."""
        return self.memory.allocated

    @property
    def fit(self) -> Array:
        """FITS, TIGHT or DOES_NOT_FIT, with what the allocator's peak does not show."""
        need = reserved_bytes(self.memory.allocated)
        room = self.workload.memory_bytes
        return np.select([need > room, need > TIGHT_SHARE * room], [DOES_NOT_FIT, TIGHT], FITS)

    def binding(self, index: int) -> str:
        """What to improve first: memory if it is tight, else the largest term beside compute, if that is large."""
        if self.fit[index] != FITS:
            return "memory"
        terms = {name: float(getattr(self.time, name)[index]) for name in BINDING}
        compute = terms.pop("compute")
        worst = max(terms, key=lambda name: terms[name])
        return BINDING[worst] if terms[worst] > 0.25 * compute else BINDING["compute"]


def predict(workload: Workload, constants: Constants | None = None) -> Prediction:
    """Step time and memory of each case of `workload`."""
    constants = constants or fitted_constants()
    settled = settle_recompute(workload)
    return Prediction(settled, step_time(settled, constants.values(settled)), memory(settled), constants.spread)
