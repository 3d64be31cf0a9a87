"""How good are the predictions? Errors by source, accelerator and precision against measured rows."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from argosy.planner.cases import Cases
from argosy.planner.constants import Constants, fitted_constants
from argosy.planner.predict import DOES_NOT_FIT, Prediction, predict
from argosy.planner.step_time import model_flops
from argosy.planner.workload import Array

SCHEMA = 1
MIN_ROWS, MIN_MFU = 5, 0.10
"""A source is judged from this many rows on; slower rows measure congestion and mistakes, not the model."""
FAILED = ("failed", "oom", "out of memory", "crash")


@dataclass(frozen=True)
class Errors:
    """Errors of one group of rows."""

    group: str
    rows: int
    mean: float
    """Mean absolute percentage error, as a share."""
    median: float
    bias: float
    """Median of predicted ÷ measured - 1: above 0 predicts too slow (too much)."""


@dataclass(frozen=True)
class Ranking:
    """How well one cell (model, number of accelerators) is ordered."""

    cell: str
    rows: int
    regret: float
    """Speed lost by running the layout predicted to be the fastest, against the fastest measured."""
    kendall_tau: float


@dataclass(frozen=True)
class FitCheck:
    """`fits` against the `status` column."""

    failed: int
    recall: float
    """Of the rows that failed, those called "does not fit" or invalid."""
    precision: float
    """Of the rows called so, those that failed."""
    not_memory: list[int]
    """Lines that failed although the memory would do: judged to have another cause."""


class Validation:
    """Predictions for all rows of a file, in order, and their errors."""

    def __init__(self, cases: Cases, constants: Constants | None = None):
        self.cases = cases
        self.constants = constants or fitted_constants()
        self.prediction: Prediction | None = predict(cases.workload(), self.constants) if cases.predictable else None
        nothing = np.full(len(cases.rows), np.nan)
        p = self.prediction
        self.step_time_s = cases.spread(p.step_time_s) if p else nothing
        self.low_s: Array = cases.spread(p.interval_s[0]) if p else nothing
        self.high_s: Array = cases.spread(p.interval_s[1]) if p else nothing
        self.tokens_per_s = cases.spread(p.tokens_per_s_per_gpu) if p else nothing
        self.memory_bytes = cases.spread(p.peak_memory_bytes) if p else nothing
        self.fit = cases.spread(p.fit.astype(float)) if p else nothing

    # -- rows -----------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """One record per row of the file, in its order."""
        out = []
        place = {row: i for i, row in enumerate(self.cases.predictable)}
        for i, row in enumerate(self.cases.rows):
            fits = None if row.fields is None else row.invalid is None and self.fit[i] != DOES_NOT_FIT
            out.append(
                {
                    "line": row.line,
                    "step_time_s": _or_none(self.step_time_s[i]),
                    "step_time_low_s": _or_none(self.low_s[i]),
                    "step_time_high_s": _or_none(self.high_s[i]),
                    "tokens_per_s_per_gpu": _or_none(self.tokens_per_s[i]),
                    "peak_memory_gib": _or_none(self.memory_bytes[i] / 2**30),
                    "fits": fits,
                    "binding": self.prediction.binding(place[i]) if self.prediction and i in place else None,
                    "missing": list(row.missing),
                    "assumed": list(row.assumed),
                    "invalid": row.invalid,
                }
            )
        return out

    # -- errors ---------------------------------------------------------------------------------------

    def usable(self) -> Array:
        """Rows with a measurement that its source does not itself dispute."""
        disputed = np.array(["disagree" in note for note in self.cases.text("notes")], dtype=bool)
        return np.isfinite(self.step_time_s) & np.isfinite(self.cases.step_time_s) & ~disputed

    def time_errors(self, column: str) -> list[Errors]:
        """Step time errors by the values of `column`."""
        keep = self.usable()
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = self.step_time_s / self.cases.step_time_s - 1.0
        return _grouped(self.cases.text(column), ratio, keep)

    def memory_errors(self, column: str) -> list[Errors]:
        """Peak memory errors by the values of `column`."""
        measured = self.cases.column("peak_memory_gib") * 2**30
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = self.memory_bytes / measured - 1.0
        return _grouped(self.cases.text(column), ratio, np.isfinite(ratio))

    def headline(self) -> float | None:
        """Mean over sources (of at least MIN_ROWS rows of MIN_MFU) of the median step time error."""
        if self.prediction is None:
            return None
        w = self.prediction.workload
        flops = self.cases.spread(model_flops(w) / w.gpus / w.peak_flops_per_s)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = self.step_time_s / self.cases.step_time_s - 1.0
            keep = np.logical_and(self.usable(), flops / self.cases.step_time_s >= MIN_MFU)
        medians = [e.median for e in _grouped(self.cases.text("source"), ratio, keep) if e.rows >= MIN_ROWS]
        return float(np.mean(medians)) if medians else None

    def rankings(self, at_least: int = 3) -> list[Ranking]:
        """Order of the layouts within each cell: source, model, accelerator, number of them, precision, sequence.

        Rows of one layout count once, with their mean speed; a cell needs `at_least` so many different layouts.
        """
        keep = np.flatnonzero(self.usable())
        names = ("source", "model_name", "gpu", "precision", "seq_len", "gpus")
        layout = ("dp", "tp", "pp", "vpp", "cp", "ep", "micro_batch", "sharding", "recompute", "global_batch_sequences")
        columns = {name: self.cases.text(name) for name in (*names, *layout)}
        gpus, tokens = self.cases.column("gpus"), self.cases.column("global_batch_sequences")
        measured = tokens * self.cases.column("seq_len") / gpus / self.cases.step_time_s
        cells: dict[tuple[str, ...], dict[tuple[str, ...], list[int]]] = {}
        for i in keep:
            cell = cells.setdefault(tuple(columns[name][i] for name in names), {})
            cell.setdefault(tuple(columns[name][i] for name in layout), []).append(int(i))
        out = []
        for key, layouts in sorted(cells.items()):
            if len(layouts) < at_least:
                continue
            true = np.array([measured[rows].mean() for rows in layouts.values()])
            guess = np.array([self.tokens_per_s[rows].mean() for rows in layouts.values()])
            regret = 1.0 - true[np.argmax(guess)] / true.max()
            name = f"{key[1]} @ {key[5]} {key[2]}"
            out.append(Ranking(name, len(layouts), float(regret), kendall_tau(true, guess)))
        return out

    def fit_check(self) -> FitCheck | None:
        """`fits` against `status`, where the file has that column."""
        status = [text.casefold() for text in self.cases.text("status")]
        if not any(status):
            return None
        known = np.array([bool(s) and row.fields is not None for s, row in zip(status, self.cases.rows, strict=True)])
        failed = np.array([any(word in s for word in FAILED) for s in status])
        called = np.array(
            [row.invalid is not None or f == DOES_NOT_FIT for row, f in zip(self.cases.rows, self.fit, strict=True)]
        )
        hit = int((known & failed & called).sum())
        missed = [self.cases.rows[i].line for i in np.flatnonzero(known & failed & ~called)]
        total, positive = int((known & failed).sum()), int((known & called).sum())
        return FitCheck(
            total, hit / total if total else float("nan"), hit / positive if positive else float("nan"), missed
        )

    def to_json(self) -> dict[str, Any]:
        """Everything, with stable keys."""
        check = self.fit_check()
        return {
            "schema": SCHEMA,
            "constants": {"count": len(self.constants), "origin": self.constants.origin},
            "headline": self.headline(),
            "rows": self.rows(),
            "step_time_errors": {c: [asdict(e) for e in self.time_errors(c)] for c in GROUPS},
            "memory_errors": [asdict(e) for e in self.memory_errors("source")],
            "rankings": [asdict(r) for r in self.rankings()],
            "fits": asdict(check) if check else None,
        }


GROUPS = ("source", "gpu", "precision")


def kendall_tau(a: Array, b: Array) -> float:
    """Concordant minus discordant pairs over all pairs (tau-a): ties count as no agreement."""
    n = len(a)
    agree = np.sign(a[:, None] - a[None]) * np.sign(b[:, None] - b[None])
    return float(agree.sum() / (n * (n - 1)))


def _grouped(keys: Iterable[str], ratio: Array, keep: Array) -> list[Errors]:
    names = np.array(list(keys), dtype=object)
    out = []
    for name in dict.fromkeys(names[keep]):
        r = ratio[keep & (names == name)]
        out.append(
            Errors(name or "unstated", len(r), float(abs(r).mean()), float(np.median(abs(r))), float(np.median(r)))
        )
    return out


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
