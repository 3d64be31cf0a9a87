"""Calibration from a few measured steps."""

import numpy as np
import pytest
from shared_data import ROW

from argosy.planner.calibrate import anchor_factor, calibrate
from argosy.planner.cases import cases_from
from argosy.planner.constants import fitted_constants
from argosy.planner.search import CLASSES
from argosy.planner.step_time import step_time


def test_one_row_is_believed_in_part_and_many_almost_fully() -> None:
    off = np.array([0.2])
    assert 1 > anchor_factor(off) > np.exp(-0.2)
    assert anchor_factor(np.repeat(off, 50)) == pytest.approx(np.exp(-0.2), rel=0.01)
    assert anchor_factor(np.array([0.0])) == 1


def test_slow_kernels_are_found_and_not_blamed_on_links() -> None:
    rows = [
        ROW | {"tp": str(tp), "dp": str(64 // tp), "micro_batch": str(micro)}
        for tp in (1, 2, 4, 8)
        for micro in (1, 2, 4)
    ]
    w = cases_from(rows).workload()
    truth = fitted_constants().scaled(gemm=0.8, attention=0.8)
    found = calibrate(w, fitted_constants(), step_time(w, truth.values(w)).total)
    assert found.factors.keys() <= CLASSES.keys()
    assert found.factors["gemm"] == pytest.approx(0.8, abs=0.08)
    assert found.factors["nic"] == pytest.approx(1.0, abs=0.1)
    assert found.error_after < 0.3 * found.error_before
