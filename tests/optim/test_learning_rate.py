import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from argosy.optim.schedule import learning_rate
from argosy.recipe.schema import ScheduleTable

HORIZON = 10_000
schedules = st.builds(
    ScheduleTable,
    kind=st.sampled_from(["wsd", "cosine", "constant"]),
    warmup_tokens=st.integers(0, 2 * HORIZON),
    decay_share=st.just(0.0) | st.floats(1e-3, 1),
    final_share=st.floats(0, 1),
)
moments = st.floats(0, 2 * HORIZON)


@given(schedules, moments)
def test_rate_lies_between_0_and_the_peak(schedule, tokens):
    assert 0 <= learning_rate(schedule, 0.3, tokens, HORIZON) <= 0.3


@given(schedules, moments, moments)
def test_rate_rises_then_falls(schedule, a, b):
    a, b = sorted((a, b))
    joint = min(schedule.warmup_tokens, HORIZON)
    rate = [learning_rate(schedule, 1.0, t, HORIZON) for t in (a, b)]
    if a >= schedule.warmup_tokens:
        assert rate[0] >= rate[1]
    elif b <= joint and (schedule.kind != "wsd" or b <= HORIZON * (1 - schedule.decay_share)):
        assert rate[0] <= rate[1]


@given(schedules, moments)
def test_rate_is_continuous(schedule, tokens):
    # Where nothing joins two pieces, a jump is what the recipe asked for.
    assume(schedule.decay_share > 0.01)
    assume(schedule.kind != "cosine" or HORIZON - schedule.warmup_tokens > 100 or schedule.warmup_tokens > 3 * HORIZON)
    step = 1e-6
    before, after = (learning_rate(schedule, 1.0, tokens + d, HORIZON) for d in (0, step))
    # 1 - sqrt is steepest at its start: sqrt(step / (decay_share · horizon)).
    assert abs(before - after) <= math.sqrt(step / (0.01 * HORIZON)) + step


@given(schedules)
def test_rate_ends_at_the_final_share(schedule):
    assume(schedule.kind != "constant")
    assume(schedule.warmup_tokens <= HORIZON)
    end = learning_rate(schedule, 2.0, HORIZON, HORIZON)
    if schedule.decay_share > 0 or schedule.kind == "cosine":
        assert math.isclose(end, 2.0 * schedule.final_share, abs_tol=1e-12)
        assert learning_rate(schedule, 2.0, 3 * HORIZON, HORIZON) == end


@pytest.mark.parametrize(
    ("kind", "tokens", "expected"),
    [
        ("wsd", 0, 0.0),
        ("wsd", 500, 0.5),
        ("wsd", 1000, 1.0),
        ("wsd", 7999, 1.0),
        ("wsd", 8500, 0.1 + 0.9 * 0.5),  # a quarter into the decay: 1 - sqrt(1/4)
        ("wsd", 10_000, 0.1),
        ("cosine", 500, 0.5),
        ("cosine", 1000, 1.0),
        ("cosine", 5500, 0.55),  # half way down
        ("cosine", 10_000, 0.1),
        ("constant", 500, 0.5),
        ("constant", 10_000, 1.0),
    ],
)
def test_known_points(kind, tokens, expected):
    schedule = ScheduleTable(kind=kind, warmup_tokens=1000, decay_share=0.2, final_share=0.1)
    assert math.isclose(learning_rate(schedule, 1.0, tokens, HORIZON), expected, abs_tol=1e-12)
