"""Each schedule holds as many activations, and leaves as much bubble, as its theory says: counted from its lists."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.layout.action import Kind
from argosy.layout.picture import picture
from argosy.layout.schedule import Schedule
from argosy.layout.schedules import SCHEDULES, build

Peak = Callable[[int, int, int, int], int]


def _interleaved(p: int, v: int, m: int, r: int) -> int:
    return min(m * v, 2 * (p - 1 - r) + (v - 1) * p + 1)


PEAKS: dict[str, Peak] = {
    "gpipe": lambda p, v, m, r: m,
    "1f1b": lambda p, v, m, r: min(m, p - r),
    # Narayanan et al. 2021; on the first rank 1 + (p-1)/(p·v) times 1F1B's (Korthikanti et al. 2022, section 4.2.3)
    "interleaved_1f1b": _interleaved,
    "looped_bfs": lambda p, v, m, r: m * v,
    # Qi et al. 2023: as 1F1B, but on every rank
    "zero_bubble": lambda p, v, m, r: min(m, p),
    "interleaved_zero_bubble": lambda p, v, m, r: min(m * v, _interleaved(p, v, m, r) + r),
    # Qi et al. 2024: as 1F1B on every rank, in stages of half the size
    "zbv": lambda p, v, m, r: 2 * p,
    # DeepSeek-V3, table of DualPipe: PP + 1 of PP = 2·ranks stages
    "dualpipev": lambda p, v, m, r: 2 * p + 1,
}
"""Most stage activations that rank r of p holds, with v stages on each and m micro-batches."""

_WHOLE = ("gpipe", "1f1b", "interleaved_1f1b", "looped_bfs")
_SPLIT = ("zero_bubble", "interleaved_zero_bubble", "zbv", "dualpipev")
BUBBLES = dict.fromkeys(_WHOLE, 3) | dict.fromkeys(_SPLIT, 1)
"""Idle units of each rank ÷ (p - 1), where F, I and W of a stage take one unit each, B two."""


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, int]:
    """(any schedule that can be built, its stages per rank)."""
    name = draw(st.sampled_from(sorted(SCHEDULES)))
    form = SCHEDULES[name]
    ranks = draw(st.integers(2, 6))
    most = form.most_virtual_stages or form.least_virtual_stages + 2
    virtual = draw(st.integers(form.least_virtual_stages, most))
    micro_batches = draw(st.integers(1, 4 * ranks).filter(lambda m: form.accepts(ranks, m)))
    return build(name, ranks, virtual, micro_batches), virtual


def test_every_schedule_has_a_theory() -> None:
    assert PEAKS.keys() == BUBBLES.keys() == SCHEDULES.keys()


@settings(max_examples=120, deadline=None)
@given(schedules())
def test_activations_at_the_peak_are_those_of_the_theory(case: tuple[Schedule, int]) -> None:
    schedule, virtual = case
    p, m = len(schedule.ranks), schedule.micro_batches
    assert [schedule.max_in_flight(r) for r in range(p)] == [PEAKS[schedule.name](p, virtual, m, r) for r in range(p)]


@settings(max_examples=120, deadline=None)
@given(schedules().filter(lambda case: case[0].micro_batches >= len(case[0].ranks)))
def test_the_bubble_is_that_of_the_theory(case: tuple[Schedule, int]) -> None:
    schedule, virtual = case
    p, m = len(schedule.ranks), schedule.micro_batches
    drawn = picture(schedule)
    assert set(drawn.idle_units) == {BUBBLES[schedule.name] * (p - 1)}
    assert drawn.units == 3 * m * virtual + BUBBLES[schedule.name] * (p - 1)


@settings(max_examples=60, deadline=None)
@given(schedules())
def test_stages_lie_in_a_loop_or_a_v(case: tuple[Schedule, int]) -> None:
    schedule, virtual = case
    p, owner = len(schedule.ranks), schedule.stage_rank()
    v_shaped = SCHEDULES[schedule.name].v_shaped
    assert schedule.stages == p * virtual
    assert all(owner[s] == (min(s, 2 * p - 1 - s) if v_shaped else s % p) for s in range(schedule.stages))


@pytest.mark.parametrize("name", [name for name in SCHEDULES if BUBBLES[name] == 1])
def test_what_is_split_is_split_as_far_as_memory_allows(name: str) -> None:
    """Without its delay of weight gradients, no schedule would be better than 1F1B."""
    schedule = build(name, 4, SCHEDULES[name].least_virtual_stages, 8)
    whole = [[a for a in actions if a.kind is not Kind.W] for actions in schedule.ranks]
    assert any(a.kind is Kind.I for actions in whole for a in actions)
    last_input = [max(i for i, a in enumerate(acts) if a.kind in (Kind.I, Kind.B)) for acts in schedule.ranks]
    after = [sum(a.kind is Kind.W for a in acts[i:]) for acts, i in zip(schedule.ranks, last_input, strict=True)]
    assert max(after) > 1, "weight gradients fill the end, where 1F1B waits"


@pytest.mark.parametrize(("ranks", "virtual", "micro_batches"), [(16, 4, 128), (32, 1, 256)])
def test_large_pipelines_too(ranks: int, virtual: int, micro_batches: int) -> None:
    name = "interleaved_zero_bubble" if virtual > 1 else "zero_bubble"
    schedule = build(name, ranks, virtual, micro_batches)
    assert max(schedule.max_in_flight(r) for r in range(ranks)) == PEAKS[name](ranks, virtual, micro_batches, 0)
