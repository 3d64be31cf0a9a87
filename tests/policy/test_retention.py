"""Which checkpoints stay, over a whole run of saves and deletions."""

import math

from hypothesis import given
from hypothesis import strategies as st

from argosy.policy.retention import RetentionPolicy
from argosy.recipe.schema import CheckpointTable

losses = st.dictionaries(st.integers(0, 300), st.floats(allow_infinity=True, allow_nan=True))


def run(policy: RetentionPolicy, every: int, until: int) -> list[set[int]]:
    """What is left after each save."""
    left: set[int] = set()
    history = []
    for step in range(every, until + 1, every):
        left.add(step)
        left -= set(policy.surplus(left))
        history.append(set(left))
    return history


@given(st.sets(st.integers(0, 300)), losses, st.integers(0, 3))
def test_the_best_stay(steps: set[int], losses: dict[int, float], best: int) -> None:
    policy = RetentionPolicy(1, keep_best=best)
    kept = steps - set(policy.surplus(steps, losses))
    known = sorted(losses[step] for step in steps if step in losses and not math.isnan(losses[step]))
    for loss in known[:best]:
        assert any(losses.get(step, math.nan) <= loss for step in kept)
    assert len(kept) <= 1 + best


def test_of_equal_losses_the_older_stays() -> None:
    assert RetentionPolicy(1, keep_best=1).surplus([10, 20, 30], {10: 2.0, 20: 2.0, 30: 3.0}) == [20]


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 3))
def test_once_there_was_one_from_before_the_window_there_always_is(window: int, every: int, last: int) -> None:
    for left in run(RetentionPolicy(last, keep_before_steps=window), every, 200):
        newest = max(left)
        if newest - every >= window:
            assert any(step <= newest - window for step in left)
            oldest = max(step for step in left if step <= newest - window)
            assert newest - oldest < 2 * window + every, "and not much older than need be"
        assert len(left) <= last + 2


def test_without_a_window_none_is_kept_for_it() -> None:
    assert run(RetentionPolicy(2), 1, 50)[-1] == {49, 50}


def test_from_recipe() -> None:
    table = CheckpointTable(keep_last=3, keep_every_steps=100, keep_best=1, keep_before_steps=50)
    assert RetentionPolicy.from_recipe(table) == RetentionPolicy(3, 100, 1, 50)
