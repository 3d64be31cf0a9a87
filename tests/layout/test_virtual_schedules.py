"""Schedules with several stages per rank: what they need, and that channels which several stages share keep order."""

import pytest

from argosy.layout.action import Action, Kind, ScheduleError
from argosy.layout.interleaved import interleaved_1f1b
from argosy.layout.transfers import with_transfers
from argosy.layout.v_shaped import zbv


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
