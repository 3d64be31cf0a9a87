"""The accuracy that is promised, on the measured tables (`bench/planner_accuracy.py` leaves sources out)."""

import csv

import numpy as np
import pytest
from shared_data import table

from argosy.planner.cases import cases_from, read_cases
from argosy.planner.constants import fitted_constants, prior_constants
from argosy.planner.fit import Training, log_ratio
from argosy.planner.validate import Validation, kendall_tau


@pytest.fixture(scope="module")
def training() -> Training:
    return Training(read_cases(table("measured_runs.csv")))


def _mean_of_medians(data: Training, residual: np.ndarray) -> float:
    errors = [np.median(np.abs(np.expm1(residual[data.source == s]))) for s in dict.fromkeys(data.source)]
    return float(np.mean(errors))


def test_fitted_constants_are_within_8_percent(training: Training) -> None:
    residual = log_ratio(training.workload, fitted_constants(), training.measured_s)
    assert len(set(training.source)) >= 15
    assert _mean_of_medians(training, residual) < 0.08


def test_physical_starting_points_alone_are_a_fair_guess(training: Training) -> None:
    assert _mean_of_medians(training, log_ratio(training.workload, prior_constants(), training.measured_s)) < 0.16


def test_a_planted_error_shows(training: Training) -> None:
    wrong = fitted_constants().scaled(gemm=0.7)
    assert _mean_of_medians(training, log_ratio(training.workload, wrong, training.measured_s)) > 0.15


def test_fits_finds_what_failed_and_spares_what_ran() -> None:
    with open(table("failed_runs.csv"), newline="", encoding="utf-8") as file:
        failed = list(csv.DictReader(file))
    with open(table("measured_runs.csv"), newline="", encoding="utf-8") as file:
        ran = [row | {"status": "ran"} for row in csv.DictReader(file) if row["framework"] == "nanotron v0.5"]

    def key(row: dict[str, str]) -> tuple[str, ...]:
        names = ("model_name", "gpus", "dp", "tp", "pp", "micro_batch", "global_batch_sequences")
        zero = row.get("zero_stage") or {"none": "0", "zero1": "1"}[row["sharding"]]
        return (*(row[name] for name in names), zero)

    both = {key(row) for row in ran}
    rows = [row | {"framework": "nanotron v0.5"} for row in failed if key(row) not in both] + ran
    check = Validation(cases_from(rows)).fit_check()
    assert check is not None
    assert check.recall >= 0.90
    assert check.precision >= 0.95


def test_kendall_tau_by_hand() -> None:
    a = np.array([1.0, 2.0, 3.0])
    assert kendall_tau(a, a) == 1
    assert kendall_tau(a, -a) == -1
    assert kendall_tau(a, np.array([1.0, 3.0, 2.0])) == pytest.approx(1 / 3)
