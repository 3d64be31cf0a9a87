"""The gradient noise scale, from norms whose truth is known."""

import numpy as np
import pytest
from written import S, WrittenRun

from argosy.ledger.noise import noise_scale


def replicas(count: int, steps: int, *, signal: float, spread: float, tokens: int, seed: int = 0) -> WrittenRun:
    """Gradients of `count` replicas: a common mean of norm² `signal`, and noise of trace `spread` per token."""
    dice, size = np.random.default_rng(seed), 2000
    mean = np.full(size, (signal / size) ** 0.5)
    run = WrittenRun()
    ranks = [run.rank(1, 0, rank, world=count) for rank in range(count)]
    for step in range(steps):
        noise = dice.normal(0, (spread / size / (tokens / count)) ** 0.5, (count, size))
        parts = (mean + noise) / count  # each replica's part of the sum
        for rank, part in zip(ranks, parts, strict=True):
            rank.step(step, step * S, (step + 1) * S, forward=S)
            rank.rows[-1] |= {"n": [tokens], "g": float(np.linalg.norm(parts.sum(axis=0)))}
            rank.put("norms", t=step * S, s=step, sq=float((part**2).sum()))
    return run


@pytest.mark.parametrize("count", [2, 8])
def test_the_scale_is_found_within_its_interval(count: int) -> None:
    found = noise_scale(replicas(count, 40, signal=0.5, spread=4000.0, tokens=8192).journal().ranks)
    assert found is not None
    assert found.tokens == pytest.approx(8000, rel=0.1)
    assert found.low <= found.tokens <= found.high
    assert (found.batch_tokens, found.steps) == (8192, 40)


def test_nothing_is_said_without_replicas_or_with_a_journal_missing() -> None:
    assert noise_scale(replicas(1, 40, signal=0.5, spread=4000.0, tokens=8192).journal().ranks) is None
    assert noise_scale(replicas(2, 3, signal=0.5, spread=4000.0, tokens=8192).journal().ranks) is None
    run = replicas(3, 40, signal=0.5, spread=4000.0, tokens=8192)
    run.files[1].rows = [row for row in run.files[1].rows if row["k"] != "norms"]
    assert noise_scale(run.journal().ranks) is None
