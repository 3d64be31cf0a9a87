"""A save that the disk refuses: every rank learns the real reason, nothing earlier is hurt, and the next one works."""

import contextlib
import io
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from argosy.checkpoint.find import find
from argosy.checkpoint.folders import FENCE_FILE
from argosy.checkpoint.save import SaveError, save
from argosy.errors import Exit
from argosy.training import worker
from argosy.training.observers import Observer
from programs import Split, make_state, manifest_of, model_table
from tiny_runs import SMALL, leave_default_group, losses, make_run, records, train

SPLIT = Split(fsdp=2)
LARGE = {"hidden_size": 64, "ffn_size": 256}


@contextlib.contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond the limit: the disk is full for it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def saves_with_one_full_rank(checkpoints: Path, full_rank: int) -> tuple[str, int]:
    """Saves step 1, fails at 2, saves 3; the error of 2 and its exit code."""
    _, _, tree = make_state(SPLIT, model_table(**LARGE))
    group = dist.group.WORLD
    save(checkpoints, tree, manifest_of(1, 2), group)
    limit = file_size_limit(16_384) if dist.get_rank() == full_rank else contextlib.nullcontext()
    with limit, pytest.raises(SaveError) as caught:
        save(checkpoints, tree, manifest_of(2, 2), group)
    dist.barrier()
    assert [path.name for path in checkpoints.glob("*step*")] == ["step-1"]
    dist.barrier()
    save(checkpoints, tree, manifest_of(3, 2), group)
    return str(caught.value), caught.value.exit_code


@pytest.mark.dist
@pytest.mark.parametrize("full_rank", [0, 1])
def test_one_full_rank_is_an_error_on_all_and_no_other_save_is_hurt(
    tmp_path: Path, run_ranks: Any, full_rank: int
) -> None:
    answers = run_ranks(2, saves_with_one_full_rank, tmp_path, full_rank)
    assert answers[0] == answers[1]
    message, code = answers[0]
    assert "checkpoint of step 2 not written: File too large" in message
    assert "earlier checkpoints are kept" in message
    assert code == Exit.NEEDS_PERSON
    for step in (1, 3):
        assert find(tmp_path, step) is not None


def test_a_disk_without_space_says_so(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here: not root, or a container without that right")
    try:
        _, _, tree = make_state(Split(), model_table(**LARGE))
        with pytest.raises(SaveError, match="No space left on device"):
            save(disk, tree, manifest_of(1), None)
        assert os.listdir(disk) in ([], [FENCE_FILE]), "a failed save must give its room back"
    finally:
        subprocess.run(["umount", disk], check=True)


class FullAtSave(Observer):
    """The disk of one rank is full for the saves of `steps`."""

    def __init__(self, rank: int, steps: set[int]):
        self.rank = rank
        self.steps = steps

    def on_phase(self, name: str, step: int) -> None:
        if dist.get_rank() == self.rank:
            full = name == "ckpt_block" and step in self.steps
            unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000 if full else unlimited, unlimited))


@pytest.mark.dist
def test_training_goes_on_after_a_failed_save_and_a_later_one_works(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, "checkpoint.every_steps=2")
    assert train(run_ranks, run, 2, [FullAtSave(1, {2})]) == [Exit.DONE] * 2
    assert sorted(losses(run)) == [0, 1, 2, 3, 4, 5]
    phases = [(event["s"], event["ph"]) for event in records(run, 1, "ckpt")]
    assert phases == [(2, "start"), (2, "failed"), (4, "start"), (4, "committed"), (6, "start"), (6, "committed")]
    failed = next(event for event in records(run, 1, "ckpt") if event["ph"] == "failed")
    assert "File too large" in failed["why"]
    assert find(run.checkpoints, 6) is not None


@pytest.mark.dist
def test_a_final_save_that_fails_needs_a_person(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, "checkpoint.every_steps=2")
    with pytest.raises(SaveError, match="step 6 not written: File too large"):
        train(run_ranks, run, 2, [FullAtSave(0, {6})])
    assert find(run.checkpoints, 4) is not None
    assert train(run_ranks, run, 2) == [Exit.DONE] * 2, "with room again, the same start finishes the run"


def full_worker(run_dir: Path, attempt: int) -> tuple[int, str]:
    """The body of a worker process of which no file may have more than 30 kB: its exit code and last words."""
    leave_default_group()
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    sys.argv = ["worker", "--run-dir", str(run_dir), "--attempt", str(attempt)]
    said = io.StringIO()
    with file_size_limit(30_000), contextlib.redirect_stderr(said):
        return worker.main(), said.getvalue().splitlines()[-1]


@pytest.mark.dist
def test_the_worker_says_why_and_ends_with_the_code_that_asks_for_a_person(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL)
    run.paid_file.touch()
    ((code, said),) = run_ranks(1, full_worker, run.path, run.claim_attempt())
    assert code == Exit.NEEDS_PERSON
    assert "step 6 not written: File too large" in said
