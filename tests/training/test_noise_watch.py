"""What replicas write of their gradients, against gradients computed here."""

from pathlib import Path
from typing import Any

import pytest

from argosy.journal.reader import read_run
from argosy.ledger.noise import noise_scale
from tiny_runs import SMALL, make_run, train


@pytest.mark.dist
def test_replicas_write_norms_that_fit_the_norm_of_their_sum(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, "journal.sample_every=1", "layout.dp=2", "layout.fsdp=1")
    train(run_ranks, run, 2)
    ranks = read_run(run.path).ranks
    squares = [[row["sq"] for row in file.of_kind("norms")] for file in ranks]
    steps = ranks[0].steps
    assert len(squares[0]) == len(squares[1]) == len(steps) == 6
    for ours, theirs, norm in zip(*squares, steps.grad_norm, strict=True):
        # |a + b| is between | |a| - |b| | and |a| + |b|; replicas of a first step agree on much
        assert abs(ours**0.5 - theirs**0.5) <= norm * 1.001
        assert norm <= (ours**0.5 + theirs**0.5) * 1.001
    found = noise_scale(ranks)
    assert found is None or found.tokens > 0


@pytest.mark.dist
def test_shards_write_none(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, "journal.sample_every=1", "layout.fsdp=2")
    train(run_ranks, run, 2)
    assert not any(list(file.of_kind("norms")) for file in read_run(run.path).ranks)
