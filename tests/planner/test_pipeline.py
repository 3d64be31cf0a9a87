"""Played schedules against the closed forms of the literature."""

import pytest

from argosy.errors import UsageError
from argosy.layout.picture import picture
from argosy.layout.play import StageTimes, play
from argosy.layout.schedules import build
from argosy.planner.pipeline import step_s


@pytest.mark.parametrize(
    ("name", "virtual", "bubble"),
    [
        ("gpipe", 1, 9.0),
        ("1f1b", 1, 9.0),
        ("interleaved_1f1b", 2, 4.5),
        ("interleaved_1f1b", 4, 2.25),
        ("looped_bfs", 2, 4.5),
    ],
)
def test_bubble_of_equal_stages_is_p_minus_1_micro_batches_over_v(name: str, virtual: int, bubble: float) -> None:
    stages = [StageTimes(1 / virtual, 2 / virtual)] * (4 * virtual)
    assert play(build(name, 4, virtual, 16), stages).bubble_s == pytest.approx(bubble)


def test_splitting_the_backward_shrinks_the_bubble() -> None:
    def bubble(name: str, virtual: int) -> float:
        stages = [StageTimes(1 / virtual, 2 / virtual)] * (4 * virtual)
        return play(build(name, 4, virtual, 16), stages).bubble_s

    assert bubble("1f1b", 1) == pytest.approx(3 * bubble("zero_bubble", 1)) == pytest.approx(6 * bubble("zbv", 2))


def test_the_slowest_stage_sets_the_pace() -> None:
    even = [StageTimes(1, 2)] * 4
    slow = [*even[:3], StageTimes(2, 4)]
    m = 32
    # Huang et al.: one pass through all stages, then m-1 times the slowest
    assert play(build("1f1b", 4, 1, m), slow).total_s == pytest.approx(3 * 3 + 6 + (m - 1) * 6)


def test_transfers_delay_the_first_and_last_micro_batch() -> None:
    stages = [StageTimes(1, 2)] * 4
    without = play(build("gpipe", 4, 1, 8), stages).total_s
    assert play(build("gpipe", 4, 1, 8), stages, 0.5).total_s == pytest.approx(without + 2 * 3 * 0.5)


@pytest.mark.parametrize(("name", "virtual"), [("1f1b", 1), ("interleaved_1f1b", 2), ("gpipe", 1)])
def test_extrapolation_equals_playing_all(name: str, virtual: int) -> None:
    stages = [StageTimes(1.0 + 0.1 * s, 2.0) for s in range(4 * virtual)]
    whole = play(build(name, 4, virtual, 48), stages, 0.1).total_s
    assert step_s(name, 4, virtual, 48, stages, 0.1) == pytest.approx(whole, rel=0.01)


def test_the_picture_shows_who_waits() -> None:
    drawn = picture(build("1f1b", 2, 1, 2))
    assert drawn.lines() == ["F0F1 · ·B0B0 ·B1B1", " ·F0B0B0F1B1B1 · ·"]
    assert (drawn.units, drawn.idle_units) == (9, (3, 3))


def test_an_unknown_schedule_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown schedule '2f2b' → use one of gpipe, 1f1b"):
        build("2f2b", 2, 1, 4)
