"""Faults come as often as they should, and those of a smaller rate are among those of a larger one."""

import numpy as np
import pytest
from courses import JOB
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.errors import UsageError
from argosy.simulator.arrivals import draw
from argosy.simulator.failures import DAY_S, Failures, Fault, preset, presets, with_kind
from argosy.simulator.nodes import Nodes
from argosy.simulator.strikes import Strikes

RATES = st.floats(1e-6, 1e-2)


@given(st.integers(0, 2**31), RATES, RATES)
@settings(max_examples=40)
def test_a_higher_rate_adds_faults_and_moves_none(seed: int, one: float, other: float) -> None:
    low, high = (draw(seed, 1, rate, 1e5) for rate in sorted((one, other)))
    marks = {(t, *u) for t, u in zip(high.time_s.tolist(), high.uniform.tolist(), strict=True)}
    assert {(t, *u) for t, u in zip(low.time_s.tolist(), low.uniform.tolist(), strict=True)} <= marks
    assert (np.diff(high.time_s) >= 0).all()


def test_as_many_as_the_rate_says_and_evenly_in_time() -> None:
    counts = np.array([len(draw(seed, 0, 3.7e-3, 1e5)) for seed in range(400)])
    # Poisson: mean and variance 370, so the mean of 400 is within 4 standard errors of 0.96
    assert abs(counts.mean() - 370) < 4 * np.sqrt(370 / 400)
    assert 0.8 < counts.var() / 370 < 1.25
    times = np.concatenate([draw(seed, 0, 1e-3, 1e5).time_s for seed in range(100)]) / 1e5
    assert abs(times.mean() - 0.5) < 4 * np.sqrt(1 / 12 / len(times))
    assert len(draw(0, 0, 0.0, 1e5)) == 0


def test_the_presets_say_what_was_published() -> None:
    llama = preset("llama3")
    assert llama.per_s(2048) * 54 * DAY_S == pytest.approx(419)
    assert 1 / llama.per_s(2048) / 3600 == pytest.approx(3.09, abs=0.01)  # hours between failures
    assert preset("meta32k").rate_per_node_day == pytest.approx(0.0023)
    assert preset("byterobust").rate_per_node_day * 1000 == pytest.approx(1.44, abs=0.01)
    assert 1 / preset("rsc1").per_s(2048) / 3600 == pytest.approx(1.80, abs=0.01)
    for name in presets():
        assert sum(fault.share for fault in preset(name).faults) == pytest.approx(1.0)
        assert preset(name).source


def strikes(failures: Failures, days: float = 2000.0, **job: object) -> list[int]:
    """Machines that were struck, of 128 places."""
    nodes = Nodes(JOB.nodes, 0)
    from dataclasses import replace

    source = Strikes(failures, replace(JOB, spares=0, **job), 1, days * DAY_S)  # type: ignore[arg-type]
    found = []
    while source.peek_s() < float("inf"):
        strike = source.pop(nodes)
        if strike is not None:
            found.append(nodes.at[strike.place])
    return found


KIND = (Fault("x", "hardware", 1.0, 0.0),)


def test_repeat_offenders_keep_the_mean_and_take_their_part() -> None:
    failures = Failures("t", 0.05, KIND, offender_share=8 / 128, offender_factor=31.0)
    struck = strikes(failures)
    assert len(struck) == pytest.approx(128 * 0.05 * 2000, rel=0.03)
    counts = np.bincount(struck, minlength=128)
    worst = np.sort(counts)[-8:]
    # 8 of 128 nodes at 31 times the others' rate have 8·31 / (8·31 + 120) of the failures
    assert worst.sum() / len(struck) == pytest.approx(248 / 368, abs=0.02)


def test_young_nodes_fail_more_often_until_they_have_settled() -> None:
    old = Failures("t", 0.05, KIND, infant_shape=0.5, settled_days=50.0)
    young = Failures("t", 0.05, KIND, infant_shape=0.5, settled_days=50.0, age_days=0.0)
    assert len(strikes(old, 50.0)) == pytest.approx(128 * 0.05 * 50, rel=0.2)
    # the mean of (t/s)^-0.5 over (0, s] is 2
    assert len(strikes(young, 50.0)) == pytest.approx(2 * 128 * 0.05 * 50, rel=0.15)


def test_wrong_rates_and_names_are_told() -> None:
    with pytest.raises(UsageError, match="below 0"):
        Failures("t", -1.0, KIND)
    with pytest.raises(UsageError, match="llama3, meta32k"):
        preset("llama4")
    with pytest.raises(UsageError, match="below 0"):
        with_kind(preset("rsc1"), "slow", -1.0)
    assert preset("none").per_s(1000) == 0
