"""How accurate is the planner on sources it was not fitted to? One table and one JSON object.

    python bench/planner_accuracy.py FOLDER_WITH_measured_runs.csv [--json]

Step time: the constants are fitted without a source and judged on it, for each source with at least 5 rows of at
least 10 % MFU. Anchored: one row of the source corrects the others (every row takes its turn as the anchor; the
correction is shrunk, see planner/calibrate.py). Ranking and memory: on the nanotron sweep. Fits: failed_runs.csv.
"""

import argparse
import csv
import json
from pathlib import Path

import numpy as np

from argosy.planner.calibrate import BETWEEN, WITHIN
from argosy.planner.cases import Cases, cases_from, read_cases
from argosy.planner.fit import Training, fit, log_ratio
from argosy.planner.step_time import model_flops
from argosy.planner.validate import MIN_MFU, Validation

NANOTRON = "nanotron v0.5"


def left_out(data: Training) -> list[dict[str, object]]:
    """Errors of each source under constants fitted without it."""
    shrink = BETWEEN**2 / (BETWEEN**2 + WITHIN**2)
    rows: list[dict[str, object]] = []
    for source in dict.fromkeys(data.source):
        mine = data.source == source
        constants = fit(data.take(np.flatnonzero(~mine)), iterations=8)
        r = log_ratio(data.workload.take(mine), constants, data.measured_s[mine])
        anchored = np.abs(np.expm1(r[:, None] - shrink * r[None]))
        np.fill_diagonal(anchored, np.nan)
        by_anchor = np.nanmedian(anchored, axis=0)
        rows.append(
            {
                "source": source,
                "rows": len(r),
                "median_error": float(np.median(np.abs(np.expm1(r)))),
                "bias": float(np.median(np.expm1(r))),
                "anchored_mean": float(by_anchor.mean()),
                "anchored_median": float(np.median(by_anchor)),
            }
        )
        print(f"{source[:42]:42} {len(r):5} {rows[-1]['median_error']:7.1%} {rows[-1]['bias']:+7.1%} "
              f"{rows[-1]['anchored_mean']:7.1%} {rows[-1]['anchored_median']:7.1%}", flush=True)  # fmt: skip
    return rows


def nanotron_cells(cases: Cases) -> dict[str, float]:
    """Ranking and memory on the sweep, over all rows and over those above the MFU limit."""
    rows = [row.cells for row in cases.rows if row.cells.get("framework") == NANOTRON]
    out: dict[str, float] = {}
    both = Validation(cases_from(rows))
    assert both.prediction is not None
    w = both.prediction.workload
    mfu = model_flops(w) / w.gpus / both.cases.step_time_s[both.cases.predictable] / w.peak_flops_per_s
    fast = [row for row, share in zip(rows, mfu, strict=True) if share >= MIN_MFU]
    for name, some in (("all", rows), ("fast", fast)):
        ranking = Validation(cases_from(some)).rankings()
        out[f"regret_{name}"] = float(np.mean([r.regret for r in ranking]))
        out[f"tau_{name}"] = float(np.mean([r.kendall_tau for r in ranking]))
    memory = both.memory_errors("framework")[0]
    out |= {"memory_mean": memory.mean, "memory_median": memory.median, "memory_bias": memory.bias}
    return out | {"tau_of_repeats": repeats(both)}


def repeats(v: Validation) -> float:
    """How well one measurement ranks another: agreement of ZeRO 0 and ZeRO 1 twins, a bound for any predictor."""
    seconds = v.cases.step_time_s
    cells: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, float]]] = {}
    for row, s in zip(v.cases.rows, seconds, strict=True):
        c = row.cells
        layout = tuple(c[name] for name in ("dp", "tp", "pp", "micro_batch", "global_batch_sequences"))
        cells.setdefault((c["model_name"], c["gpus"]), {}).setdefault(layout, {})[c["sharding"]] = float(s)
    taus = []
    for twins in cells.values():
        pairs = np.array([(t["none"], t["zero1"]) for t in twins.values() if len(t) == 2])
        if len(pairs) >= 4:
            signs = np.sign(pairs[:, None] - pairs[None])
            taus.append((signs[..., 0] * signs[..., 1]).sum() / (len(pairs) * (len(pairs) - 1)))
    return float(np.mean(taus))


def fits(folder: Path, cases: Cases) -> dict[str, float]:
    """Recall and precision; rows that both ran and failed are dropped."""
    ran = [row.cells | {"status": "ran"} for row in cases.rows if row.cells.get("framework") == NANOTRON]
    with open(folder / "failed_runs.csv", newline="", encoding="utf-8") as file:
        failed = [row | {"framework": NANOTRON} for row in csv.DictReader(file)]

    def key(row: dict[str, str]) -> tuple[str, ...]:
        names = ("model_name", "gpus", "dp", "tp", "pp", "micro_batch", "global_batch_sequences")
        return (*(row[n] for n in names), row.get("zero_stage") or {"none": "0", "zero1": "1"}[row["sharding"]])

    both = {key(dict(row)) for row in ran}
    check = Validation(cases_from([row for row in failed if key(row) not in both] + ran)).fit_check()
    assert check is not None
    return {"recall": check.recall, "precision": check.precision, "not_memory": float(len(check.not_memory))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = read_cases(options.folder / "measured_runs.csv")
    print(f"{'left out':42} {'rows':>5} {'median':>7} {'bias':>7} {'1 row':>7} {'typical':>7}")
    sources = left_out(Training(cases))
    result = {
        "sources": sources,
        "step_time": {k: float(np.mean([float(str(s[k])) for s in sources]))
                      for k in ("median_error", "anchored_mean", "anchored_median")},
        "nanotron": nanotron_cells(cases),
        "fits": fits(options.folder, cases),
    }  # fmt: skip
    for name in ("step_time", "nanotron", "fits"):
        print(name, json.dumps(result[name]))
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
