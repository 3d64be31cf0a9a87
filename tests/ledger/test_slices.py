"""Accounts cut by time: each slice is what books of that window alone would say."""

from itertools import pairwise

import pytest
from random_runs import RandomRun
from written import WALL, WrittenRun

from argosy.ledger.books import keep_books


@pytest.mark.parametrize("seed", range(60))
def test_slices_are_the_books_of_their_windows(seed: int) -> None:
    story = RandomRun(seed)
    journal = story.run.journal()
    begin, end = min(row["t"] for row in story.run.paid_rows), story.t
    edges = sorted(story.dice.randint(begin - 10, end + 10) + WALL for _ in range(5))
    whole = keep_books(journal, edges_ns=edges)
    bounds = [0, *edges, 2 * WALL]
    alone = [keep_books(journal, window_ns=window).accounts for window in pairwise(bounds)]
    assert whole.slices == alone


def test_a_refused_step_goes_to_torn_in_every_slice_that_it_reaches_into() -> None:
    run = WrittenRun().paid(0, 100)
    run.agent(1, 0).end(100)
    run.rank(1, 0).span("startup.import", 0, 20).step(0, 20, 80, forward=70).ckpt(1, 80).close(90)
    books = keep_books(run.journal(), tolerant=True, edges_ns=[WALL + 50])
    assert books.refusals
    assert books.slices == [
        {"stability.import": 20, "unattributed.torn": 30},
        {"stability.teardown": 10, "unattributed.residual": 10, "unattributed.torn": 30},
    ]
