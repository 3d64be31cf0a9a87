"""The slow rank is named by its own time; ranks that are slow together, or for a moment, are not."""

import random

from argosy.journal.heartbeat import OWN_STEPS, Beat, State
from argosy.resilience.signs import Sign
from argosy.resilience.stragglers import WINDOW, Slow, Stragglers


def look(own: list[list[int]], every: int = 5) -> list[Slow]:
    """Show the own times (by rank, by step) as they come, `every` steps at once."""
    stragglers, found = Stragglers(), []
    for steps in range(every, len(own[0]) + 1, every):
        found += stragglers.look(
            [
                Sign(
                    rank,
                    Beat(
                        1,
                        steps,
                        State.STEPPING,
                        0,
                        1,
                        rank,
                        1,
                        1,
                        steps=steps,
                        own_ns=tuple(times[:steps][-OWN_STEPS:]),
                    ),
                )
                for rank, times in enumerate(own)
            ]
        )
    return found


def times(factor: float, steps: int, seed: int, noise: float = 0.02) -> list[int]:
    chance = random.Random(seed)
    return [round(1e8 * factor * (1 + abs(chance.gauss(0, noise)))) for _ in range(steps)]


def test_ten_per_cent_are_named_within_fifty_steps() -> None:
    own = [times(1.1 if rank == 2 else 1.0, 200, rank) for rank in range(4)]
    lasting = [slow for slow in look(own) if slow.lasting]
    assert [slow.rank for slow in lasting] == [2], "once is enough"
    assert lasting[0].up_to_step <= 50
    assert 0.05 < lasting[0].excess < 0.15


def test_all_slow_alike_blames_nobody() -> None:
    assert look([times(3.0, 200, rank) for rank in range(4)]) == []


def test_a_slow_phase_of_one_window_is_flagged_but_does_not_last() -> None:
    own = [times(1.0, 300, rank) for rank in range(4)]
    for start in range(25, 300, 4 * WINDOW):
        own[1][start : start + WINDOW] = times(1.5, WINDOW, start)[: len(own[1][start : start + WINDOW])]
    found = look(own)
    assert {slow.rank for slow in found} == {1}
    assert not any(slow.lasting for slow in found)


def test_noise_names_nobody() -> None:
    for seed in range(30):
        own = [times(1.0, 400, seed * 10 + rank, noise=0.2) for rank in range(4)]
        assert not [slow for slow in look(own) if slow.lasting], seed


def test_one_rank_alone_has_nobody_to_be_compared_with() -> None:
    assert look([times(1.0, 100, 1)]) == []


def test_a_steering_rank_in_very_short_steps_is_not_slow() -> None:
    own = [[time // 50 for time in times(1.2 if rank == 0 else 1.0, 200, rank)] for rank in range(4)]
    assert look(own) == [], "2 ms steps, 0.4 ms more"


def test_a_crowded_machine_names_nobody() -> None:
    chance = random.Random(5)
    own = [times(1.0, 400, rank) for rank in range(8)]
    for step in range(400):  # each step somebody else has to wait for a processor
        own[chance.randrange(8)][step] *= 2
    for step in range(0, 400, 3):  # and one a little more often
        own[3][step] *= 2
    assert look(own) == []
