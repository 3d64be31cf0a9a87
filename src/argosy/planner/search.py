"""Find the layout: all of them predicted at once, the best ones told apart by what is not known exactly."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from argosy.errors import UsageError
from argosy.hardware.cluster import Cluster
from argosy.layout.layout import Layout
from argosy.layout.play import StageTimes
from argosy.layout.schedules import SCHEDULES
from argosy.planner.constants import Constants, fitted_constants
from argosy.planner.memory import reserved_bytes, stage_layers
from argosy.planner.pipeline import step_s
from argosy.planner.predict import FITS, Prediction, predict
from argosy.planner.question import Question
from argosy.planner.space import Space, build_space, space_of
from argosy.planner.step_time import step_time
from argosy.planner.workload import Index

SHORT_LIST = 48
"""Layouts that are compared under other speeds of links and kernels."""
MEMORY_SPREAD = 0.12
"""Half-width of the memory's interval: two of three measured nanotron rows up to tp 8 lie within it."""
TERM_SPREAD = 0.3
"""Half-width of a single term of the step time, which no source states by itself: twice that of the whole."""
SWINGS = (0.8, 1.2)
"""Speeds of kernels, scale-up links and network, each against the constants."""


@dataclass(frozen=True)
class Found:
    """The answer of a search."""

    question: Question
    cluster: Cluster
    space: Space
    prediction: Prediction
    order: Index
    """Indices of the layouts that fit, fastest first."""
    robust: int
    """Index of the layout with the smallest worst-case loss under SWINGS."""
    regret: dict[int, float]
    """Worst-case loss of each layout of the short list: step time above the best one's, as a share."""

    @property
    def best(self) -> int:
        """The recommended layout: the fastest, unless it is fragile while a safer one is as good as fast."""
        fastest = int(self.order[0])
        time = self.prediction.step_time_s
        return self.robust if time[self.robust] <= 1.01 * time[fastest] else fastest

    def layout(self, i: int) -> Layout:
        return self.space.layout(i)

    def pareto(self) -> list[int]:
        """Layouts that no other beats in both step time and memory, fastest first."""
        memory = self.prediction.peak_memory_bytes
        out: list[int] = []
        least = np.inf
        for i in self.order:
            if memory[i] < least * (1 - 1e-9):
                out.append(int(i))
                least = float(memory[i])
        return out


def search(question: Question, cluster: Cluster, constants: Constants | None = None, *, prune: bool = True) -> Found:
    """The best layouts of `question` on `cluster`.

    Raises UsageError when nothing fits, with the terms that fill the memory of the smallest layout.
    """
    constants = calibrated(constants or fitted_constants(), cluster)
    space = build_space(question, cluster, prune)
    if not len(space):
        raise _too_large(question, cluster)
    prediction = predict(space.workload, constants)
    fits = reserved_bytes(prediction.peak_memory_bytes) <= space.workload.memory_bytes
    # Tight layouts come after all that have room to spare and are about as fast
    penalty = np.where(prediction.fit == FITS, 1.0, 1.01)
    ranked = np.argsort(prediction.step_time_s * penalty, kind="stable")
    order = ranked[fits[ranked]]
    if not len(order):
        raise _too_large(question, cluster)
    robust, regret = _robust(space, order[:SHORT_LIST], constants)
    return Found(question, cluster, space, prediction, order, robust, regret)


def found_for(question: Question, cluster: Cluster, layout: Layout, constants: Constants | None = None) -> Found:
    """`layout` as the only answer, whether it fits or not."""
    constants = calibrated(constants or fitted_constants(), cluster)
    space = space_of(question, cluster, layout)
    prediction = predict(space.workload, constants)
    return Found(question, cluster, space, prediction, np.array([0]), 0, {})


def calibrated(constants: Constants, cluster: Cluster) -> Constants:
    """The constants with the cluster's measured factors (measured ÷ predicted rate by class)."""
    if unknown := sorted(cluster.measured.keys() - CLASSES.keys()):
        raise UsageError(
            f"unknown classes in measured: {', '.join(unknown)}", where="cluster", do=f"use {', '.join(CLASSES)}"
        )
    factors: dict[str, float] = {}
    for name, factor in cluster.measured.items():
        for constant, power in CLASSES[name].items():
            factors[constant] = factors.get(constant, 1.0) * factor**power
    return constants.scaled(**factors) if factors else constants


CLASSES: dict[str, dict[str, int]] = {
    "gemm": {"gemm": 1, "attention": 1},
    "memory": {"memory": 1},
    "link": {"link": 1},
    "nic": {"nic": 1, "nic_cloud": 1},
    "host": {"host_layer": -1, "host_comm": -1},
}
"""Kernel and link classes that a calibration may scale, and the constants each means."""


def _robust(space: Space, short: Index, constants: Constants) -> tuple[int, dict[int, float]]:
    """(layout with the least worst-case regret, regret of each) over all combinations of SWINGS."""
    workload = space.workload.take(short)
    times = []
    for gemm, link, nic in product(SWINGS, repeat=3):
        swung = constants.scaled(gemm=gemm, attention=gemm, link=link, nic=nic, nic_cloud=nic)
        times.append(step_time(workload, swung.values(workload)).total)
    table = np.stack(times)
    regret = (table / table.min(axis=1, keepdims=True) - 1.0).max(axis=0)
    return int(short[int(np.argmin(regret))]), {int(i): float(r) for i, r in zip(short, regret, strict=True)}


def played_step_s(found: Found, i: int) -> float:
    """Step time of layout i with its pipeline played action by action instead of the closed form."""
    prediction, layout = found.prediction, found.layout(i)
    if layout.pp == 1:
        return float(prediction.step_time_s[i])
    w, t = prediction.workload.take(slice(i, i + 1)), prediction.time
    m = float(w.micro_batches[0])
    per_rank_layers = float(w.layers[0] / w.pp[0])
    # Seconds of one layer, forward and backward, with what waits inside it
    inside = float(t.tp_comm[i] + t.cp_comm[i] + t.ep_comm[i] + t.host[i])
    first_layers, last_layers = (float(x[0]) for x in stage_layers(w))
    middle = max(per_rank_layers, 1e-9)
    whole = (float(t.compute[i]) + inside) / m * layout.pp
    head = float(t.head[i])
    layer = (whole - head) / float(w.layers[0])
    counts = [middle] * layout.pp
    # The last stage, with the output layer, is on the last rank, but in a V on the first
    v_shaped = SCHEDULES[layout.schedule].v_shaped
    counts[0], counts[-1] = (last_layers, first_layers) if v_shaped else (first_layers, last_layers)
    stages = []
    for stage in range(layout.stages):
        rank = min(stage, layout.stages - 1 - stage) if v_shaped else stage % layout.pp
        work = counts[rank] / layout.virtual_stages * layer + (head if stage == layout.stages - 1 else 0.0)
        stages.append(StageTimes(work / 3.0, work * 2.0 / 3.0))
    hop = float(t.pp_comm[i]) / (2.0 * ((layout.pp - 1) + m * layout.virtual_stages))
    steps = step_s(layout.schedule, layout.pp, layout.virtual_stages, int(m), stages, hop)
    return steps + float(t.dp_comm[i] + t.optimizer[i])


def _too_large(question: Question, cluster: Cluster) -> UsageError:
    from argosy.planner.explain import why_not

    what, do = why_not(question, cluster)
    return UsageError(what, where="cluster", do=do)


def to_record(found: Found, i: int) -> dict[str, Any]:
    """Layout i as JSON values."""
    p = found.prediction
    low, high = p.interval_s
    layout = found.layout(i)
    return {
        "layout": {k: list(v) if isinstance(v, tuple) else v for k, v in layout.__dict__.items()},
        "predicted": {
            "step_time_s": _value(p.step_time_s[i], low[i], high[i], "s"),
            "tokens_per_s_per_gpu": _value(
                p.tokens_per_s_per_gpu[i],
                found.question.batch_tokens / found.cluster.count / high[i],
                found.question.batch_tokens / found.cluster.count / low[i],
                "tokens/s",
            ),
            "peak_memory_bytes": _value(
                p.peak_memory_bytes[i],
                p.peak_memory_bytes[i] * (1 - MEMORY_SPREAD),
                p.peak_memory_bytes[i] * (1 + MEMORY_SPREAD),
                "bytes",
            ),
            "bubble_s": _value(
                p.time.bubble[i], p.time.bubble[i] * (1 - TERM_SPREAD), p.time.bubble[i] * (1 + TERM_SPREAD), "s"
            ),
        },
        "exposed_comm_s": {axis: float(getattr(p.time, f"{axis}_comm")[i]) for axis in ("dp", "tp", "pp", "cp", "ep")},
        "binding": p.binding(i),
        "worst_case_regret": found.regret.get(i),
    }


def _value(value: float, low: float, high: float, unit: str) -> dict[str, Any]:
    return {"value": float(value), "low": float(low), "high": float(high), "unit": unit}
