"""Schedules with several stages per rank, and with split backwards: valid when built, memory as theory says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.layout.action import Action, Kind, ScheduleError
from argosy.layout.interleaved import interleaved_1f1b, looped_bfs
from argosy.layout.layout import Layout
from argosy.layout.transfers import with_transfers
from argosy.layout.zero_bubble import zbv, zero_bubble


@settings(max_examples=25)
@given(st.integers(2, 5), st.integers(2, 4), st.integers(1, 3))
def test_interleaved_schedules_are_valid_and_hold_what_theory_says(ranks: int, virtual: int, rounds: int) -> None:
    micro_batches = ranks * rounds
    schedule = interleaved_1f1b(ranks, virtual, micro_batches)  # building one runs the validator
    total = micro_batches * virtual
    for rank in range(ranks):
        ahead = min(total, 2 * (ranks - 1 - rank) + (virtual - 1) * ranks)
        assert schedule.max_in_flight(rank) == min(total, ahead + 1)
    # Korthikanti et al. 2022: 1 + (p-1)/(p·v) times the activations of 1F1B on the first rank
    if rounds >= 2:
        assert schedule.max_in_flight(0) == pytest.approx(ranks * virtual * (1 + (ranks - 1) / (ranks * virtual)))


@settings(max_examples=25)
@given(st.integers(2, 5), st.integers(2, 3), st.integers(1, 6))
def test_looped_bfs_holds_every_micro_batch(ranks: int, virtual: int, micro_batches: int) -> None:
    schedule = looped_bfs(ranks, virtual, micro_batches)
    assert {schedule.max_in_flight(rank) for rank in range(ranks)} == {virtual * micro_batches}


@settings(max_examples=25)
@given(st.integers(2, 6), st.integers(0, 7))
def test_zero_bubble_holds_no_more_than_1f1b(ranks: int, more: int) -> None:
    schedule = zero_bubble(ranks, ranks + more)
    assert max(schedule.max_in_flight(rank) for rank in range(ranks)) <= ranks


@settings(max_examples=25)
@given(st.integers(2, 5), st.integers(0, 5))
def test_zbv_is_a_v_and_holds_no_more_than_1f1b(ranks: int, more: int) -> None:
    schedule = zbv(ranks, 2 * ranks + more)
    owner = schedule.stage_rank()
    assert [owner[stage] for stage in range(2 * ranks)] == [*range(ranks), *reversed(range(ranks))]
    assert max(schedule.max_in_flight(rank) for rank in range(ranks)) <= 2 * ranks  # of half-sized stages


def test_too_few_micro_batches_are_refused_with_what_would_do() -> None:
    with pytest.raises(ScheduleError, match=r"multiple of 4 micro-batches, not 6; nearest: 4 or 8"):
        interleaved_1f1b(4, 2, 6)
    with pytest.raises(ScheduleError, match="at least 8 micro-batches"):
        zbv(4, 7)


def test_computations_that_wait_for_each_other_are_refused() -> None:
    owner = {0: 0, 1: 1}
    first = [Action(0, Kind.B, 0), Action(0, Kind.F, 0)]  # backward before its own forward
    with pytest.raises(ScheduleError, match="wait for each other: rank 0 in 0B0"):
        with_transfers("broken", 1, [first, [Action(1, Kind.F, 0), Action(1, Kind.B, 0)]], owner)


def test_receives_follow_the_order_of_sends_when_a_channel_is_shared() -> None:
    # With two ranks, forwards of the wrapped stage and gradients travel over one channel
    schedule = interleaved_1f1b(2, 3, 4)
    for source, target in ((0, 1), (1, 0)):
        sends = [a for a in schedule.ranks[source] if a.kind in (Kind.SEND_F, Kind.SEND_B)]
        receives = [a for a in schedule.ranks[target] if a.kind in (Kind.RECV_F, Kind.RECV_B)]
        ends = [(a.stage + (1 if a.kind is Kind.SEND_F else -1), a.micro_batch) for a in sends]
        assert ends == [(a.stage, a.micro_batch) for a in receives]


def test_a_layout_knows_how_many_stages_each_schedule_has() -> None:
    Layout(pp=4, schedule="interleaved_1f1b", virtual_stages=3)
    Layout(pp=4, schedule="zbv", virtual_stages=2)
    for wrong in ({"schedule": "zbv"}, {"schedule": "1f1b", "virtual_stages": 2}, {"schedule": "interleaved_1f1b"}):
        with pytest.raises(Exception, match="virtual_stages"):
            Layout(pp=4, **wrong)
