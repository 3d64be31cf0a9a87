"""2N steps at once and N + stop + N steps are the same training, bit by bit."""

from pathlib import Path
from typing import Any

import pytest

from argosy.errors import Exit
from tiny_runs import SMALL, StopAfter, digests, losses, make_run, train

MUON = ("optimizer.kind='muon'",)
SHARDS = ("layout.fsdp=2",)  # such a small model would be replicated


@pytest.mark.dist
@pytest.mark.parametrize(
    ("ranks", "layout"),
    [(1, ()), (2, SHARDS), (2, ()), (2, (*SHARDS, "precision.compute='bf16'")), (2, (*SHARDS, *MUON))],
    ids=["one rank", "fsdp", "replicas", "fsdp bf16", "fsdp muon"],
)
def test_stopped_and_continued_run_equals_its_twin(
    tmp_path: Path, run_ranks: Any, ranks: int, layout: tuple[str, ...]
) -> None:
    whole, parts = (make_run(tmp_path / name, *SMALL, *layout) for name in ("whole", "parts"))
    assert train(run_ranks, whole, ranks) == [Exit.DONE] * ranks

    assert train(run_ranks, parts, ranks, [StopAfter(parts, 3)]) == [Exit.START_AGAIN] * ranks
    (parts.control / "stop").unlink()
    assert train(run_ranks, parts, ranks) == [Exit.DONE] * ranks

    assert losses(parts) == losses(whole)
    assert sorted(losses(whole)) == [0, 1, 2, 3, 4, 5]
    assert digests(parts, 6) == digests(whole, 6)
    assert digests(parts, 3) != digests(whole, 6)
