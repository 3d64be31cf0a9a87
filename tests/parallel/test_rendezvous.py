"""Ranks of one attempt meet at a file of that attempt, and only there."""

from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from argosy.errors import Exit, StoppedError, UsageError
from argosy.parallel.rendezvous import meet, named_store


def two_attempts_at_once(events: Path) -> tuple[int, set[str]]:
    """Ranks 0 and 1 are attempt 1, ranks 2 and 3 attempt 2; who is in whose store?"""
    attempt, rank = divmod(dist.get_rank(), 2)
    store = meet(events / f"attempt-{attempt + 1}" / "store", rank, 2, 30)
    store.set(f"{attempt}-{rank}", "here")
    store.wait([f"{attempt}-0", f"{attempt}-1"])
    present = {f"{a}-{r}" for a in (0, 1) for r in (0, 1) if store.check([f"{a}-{r}"])}
    dist.barrier()  # rank 0 of an attempt holds its store: it must not leave first
    return attempt, present


@pytest.mark.dist
def test_two_attempts_do_not_meet_each_other(tmp_path: Path, run_ranks: Any) -> None:
    for attempt in (1, 2):
        (tmp_path / f"attempt-{attempt}").mkdir()
    for attempt, present in run_ranks(4, two_attempts_at_once, tmp_path):
        assert present == {f"{attempt}-0", f"{attempt}-1"}
    assert {path.name for path in (tmp_path / "attempt-1").iterdir()} == {"store"}


def test_a_rank_does_not_wait_for_ever(tmp_path: Path) -> None:
    with pytest.raises(StoppedError, match=r"rank 0 did not open the store within 0\.05 s") as caught:
        meet(tmp_path / "store", rank=1, world_size=2, timeout_s=0.05)
    assert caught.value.exit_code == Exit.NEEDS_PERSON


@pytest.mark.parametrize("port", [None, "http"])
def test_an_environment_that_names_no_store_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, port: str | None) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    if port:
        monkeypatch.setenv("MASTER_PORT", port)
    with pytest.raises(UsageError, match="MASTER_PORT"):
        named_store(1, 2, 1.0)
