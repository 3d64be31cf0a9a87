"""Predictions depend on physics only: not on where a row came from or lies, and smoothly on its sizes."""

import csv
import random

import numpy as np
import pytest
from shared_data import ROW, table

from argosy.planner.cases import cases_from
from argosy.planner.constants import fitted_constants
from argosy.planner.predict import predict


def _times(rows: list[dict[str, str]]) -> dict[str, float]:
    cases = cases_from(rows)
    seconds = cases.spread(predict(cases.workload()).step_time_s)
    return {row["id"]: float(s) for row, s in zip(rows, seconds, strict=True)}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with open(table("measured_runs.csv"), newline="", encoding="utf-8") as file:
        return [row | {"id": str(i)} for i, row in enumerate(csv.DictReader(file))]


def test_source_order_and_measurements_change_nothing(rows: list[dict[str, str]]) -> None:
    blank = dict.fromkeys(
        ("source", "source_file_or_table", "notes", "step_time_s", "tokens_per_s_per_gpu", "peak_memory_gib",
         "tflops_per_gpu_reported", "mfu_pct_reported", "hfu_pct_reported", "flops_convention"), ""
    )  # fmt: skip
    blind = [row | blank for row in rows]
    random.Random(1).shuffle(blind)
    seen, unseen = _times(rows), _times(blind)
    assert all(seen[i] == unseen[i] or (np.isnan(seen[i]) and np.isnan(unseen[i])) for i in seen)


@pytest.mark.parametrize("column", ["hidden", "ffn_hidden"])
def test_three_percent_of_width_moves_time_and_memory_by_few_percent(rows: list[dict[str, str]], column: str) -> None:
    some = random.Random(2).sample([row for row in rows if row["hidden"] and row["ffn_hidden"]], 300)
    results = []
    for factor in (0.97, 0.985, 1.0, 1.015, 1.03):
        moved = cases_from([row | {column: str(float(row[column]) * factor)} for row in some])
        p = predict(moved.workload())
        results.append((moved.spread(p.step_time_s), moved.spread(p.peak_memory_bytes)))
    for quantity in (0, 1):
        steps = np.diff(np.log(np.stack([r[quantity] for r in results])), axis=0)
        steps = steps[:, np.isfinite(steps).all(axis=0)]
        assert np.abs(steps).max() < 0.06  # a step of 1.5 % in width, and at most its square and a little
        assert np.abs(np.diff(steps, axis=0)).max() < 0.06  # no jumps; a kink where recomputation sets in


def test_constants_are_few_and_belong_to_parts() -> None:
    constants = fitted_constants()
    assert len(constants) < 60
    assert {dtype for _, dtype in constants.gemm} <= {"fp32", "fp16", "bf16", "fp8", "fp4"}
    assert all(0.3 < share < 1 for share in constants.gemm.values())


def test_a_wider_model_is_slower_and_a_faster_link_is_not_slower() -> None:
    base = {**ROW, "id": "0"}
    wide = base | {"hidden": "8192", "ffn_hidden": "32768", "heads": "64", "id": "1"}
    slow = base | {"interconnect_if_stated": "4x25 Gb/s per node", "id": "2"}
    fast = base | {"interconnect_if_stated": "8x400 Gb/s per node", "id": "3"}
    t = _times([base, wide, slow, fast])
    assert t["1"] > 3 * t["0"]
    assert t["2"] > t["0"] >= t["3"]
