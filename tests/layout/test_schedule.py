"""Builders give right schedules for every size; every way to break one is caught."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.layout.action import Action, Kind, ScheduleError
from argosy.layout.schedule import Schedule, gpipe, one_forward_one_backward

BUILDERS = {"gpipe": gpipe, "1f1b": one_forward_one_backward}

stages_of, micro_of = st.integers(1, 6), st.integers(1, 9)


@given(st.sampled_from(sorted(BUILDERS)), stages_of, micro_of)
def test_builders_do_all_work_once(name: str, stages: int, micro_batches: int) -> None:
    schedule = BUILDERS[name](stages, micro_batches)
    count = Counter(action.kind for actions in schedule.ranks for action in actions)
    links = (stages - 1) * micro_batches
    assert count[Kind.F] == count[Kind.B] == stages * micro_batches
    assert count[Kind.SEND_F] == count[Kind.RECV_F] == count[Kind.SEND_B] == count[Kind.RECV_B] == links
    assert count[Kind.REDUCE] == stages


@given(stages_of, micro_of)
def test_activations_held(stages: int, micro_batches: int) -> None:
    """GPipe holds every micro-batch; rank r of 1F1B holds min(m, p - r)."""
    assert [gpipe(stages, micro_batches).max_in_flight(r) for r in range(stages)] == [micro_batches] * stages
    held = [one_forward_one_backward(stages, micro_batches).max_in_flight(r) for r in range(stages)]
    assert held == [min(micro_batches, stages - r) for r in range(stages)]


def work(*actions: str) -> tuple[Action, ...]:
    """Actions from text such as ``0F1`` or ``1REDUCE``."""
    kinds = sorted(Kind, key=len, reverse=True)
    made = []
    for text in actions:
        kind = next(kind for kind in kinds if text[1:].startswith(kind))
        rest = text[1 + len(kind) :]
        made.append(Action(int(text[0]), kind, int(rest) if rest else None))
    return tuple(made)


@given(st.data(), st.sampled_from(sorted(BUILDERS)), st.integers(2, 4), st.integers(1, 4))
def test_dropping_any_work_or_transfer_is_caught(data: st.DataObject, name: str, stages: int, micro: int) -> None:
    right = BUILDERS[name](stages, micro)
    rank = data.draw(st.integers(0, stages - 1))
    actions = list(right.ranks[rank])
    victim = data.draw(st.sampled_from([action for action in actions if action.kind is not Kind.REDUCE]))
    actions.remove(victim)
    ranks = (*right.ranks[:rank], tuple(actions), *right.ranks[rank + 1 :])
    with pytest.raises(ScheduleError):
        Schedule("broken", stages, micro, ranks)


@pytest.mark.parametrize(
    ("ranks", "micro_batches", "reason"),
    [
        ([work("0F0", "0B0", "0F0")], 1, "0F0 happens twice"),
        ([work("0B0", "0F0")], 1, "0B0 comes before 0F0"),
        ([work("0F0", "0W0", "0I0")], 1, "0W0 comes before 0I0"),
        ([work("0F0", "0B0", "0I0")], 1, "needs F and either B, or I and W"),
        ([work("0F1", "0B1")], 1, "no micro-batch below 1"),
        ([work("0F0", "0REDUCE", "0B0")], 1, "0REDUCE comes before"),
        ([work("0UNSHARD", "0F0", "0RESHARD", "0B0")], 1, "0B0 comes after RESHARD without UNSHARD"),
        ([work("0UNSHARD1", "0F0", "0B0")], 1, "concerns the whole stage"),
        ([work("0F0", "0B0"), work("0F1", "0B1")], 2, "stage 0 is on rank 0 and on rank 1"),
        ([work("1F0", "1B0")], 1, "stages"),
        (
            [work("0F0", "0SEND_F0", "0B0"), work("1RECV_F0", "1F0", "1B0", "1SEND_B0")],
            1,
            "1SEND_B0 has no 0RECV_B0",
        ),
        (
            [work("0F0", "0RECV_B0", "0SEND_F0", "0B0"), work("1RECV_F0", "1F0", "1B0", "1SEND_B0")],
            1,
            "deadlock: rank 0 waits in 0RECV_B0, rank 1 waits in 1RECV_F0",
        ),
        (
            [
                work("0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1", "0B1"),
                work("1RECV_F1", "1F1", "1RECV_F0", "1F0", "1B0", "1SEND_B0", "1B1", "1SEND_B1"),
            ],
            2,
            "rank 1 expects 1RECV_F1, but 0SEND_F0 arrives",
        ),
        (
            [work("0F0", "0SEND_F0", "0B0", "0RECV_B0"), work("1RECV_F0", "1F0", "1B0", "1SEND_B0")],
            1,
            "0B0 comes before 0RECV_B0",
        ),
    ],
)
def test_what_is_wrong_is_named(ranks: list[tuple[Action, ...]], micro_batches: int, reason: str) -> None:
    stages = 1 + max(action.stage for actions in ranks for action in actions)
    with pytest.raises(ScheduleError) as caught:
        Schedule("wrong", stages, micro_batches, tuple(ranks))
    assert reason in str(caught.value)


def test_split_backward_and_two_stages_on_one_rank() -> None:
    """A V: rank 0 owns stages 0 and 3, so between 1 and 2 nothing is sent."""
    ranks = (
        work("0F0", "0SEND_F0", "3RECV_F0", "3F0", "3I0", "3SEND_B0", "3W0", "0RECV_B0", "0I0", "0W0", "0REDUCE"),
        work("1RECV_F0", "1F0", "2F0", "2SEND_F0", "2RECV_B0", "2I0", "1I0", "1SEND_B0", "2W0", "1W0", "1REDUCE"),
    )
    schedule = Schedule("v", 4, 1, ranks)
    assert schedule.stage_rank() == {0: 0, 3: 0, 1: 1, 2: 1}
    assert schedule.max_in_flight(0) == 2
