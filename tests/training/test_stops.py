"""Every way to end or save a run, on real ranks: all agree on one step, save it, and say why."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from argosy.checkpoint.find import find
from argosy.errors import Exit
from argosy.journal.reader import read_rows
from argosy.launch.paid_before import paid_before_ns
from argosy.registry.run_folder import RunFolder
from argosy.training.observers import Observer
from tiny_runs import SMALL, StopAfter, losses, make_run, records, train

LONG = (*SMALL, "objective.tokens=384000")


class SlowSteps(Observer):
    """Makes the length of a step known."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def on_step_end(self, step: int, loss: float) -> None:
        time.sleep(self.seconds)


class SignalTo(Observer):
    """A signal reaches one rank in the middle of a step."""

    def __init__(self, rank: int, step: int):
        self.rank = rank
        self.step = step

    def on_phase(self, name: str, step: int) -> None:
        if dist.get_rank() == self.rank and step == self.step and name == "backward":
            os.kill(os.getpid(), signal.SIGTERM)


class WriteControl(Observer):
    """Somebody writes a control file while step `step` runs."""

    def __init__(self, file: Path, text: str, step: int):
        self.file = file
        self.text = text
        self.step = step

    def on_step_end(self, step: int, loss: float) -> None:
        if step == self.step:
            self.file.write_text(self.text)


def decision(run: RunFolder, attempt: int) -> dict[str, Any]:
    first, *others = (
        records(run, attempt, "decision", rank) for rank in (0, 1) if run.rank_file(attempt, rank).exists()
    )
    assert [[(d["reason"], d["exit"]) for d in other] for other in others] == [
        [(d["reason"], d["exit"]) for d in first] for _ in others
    ], "all ranks end for the same reason"
    (stop,) = first
    return stop


@pytest.mark.dist
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_any_one_rank_stops_all_after_the_same_step(tmp_path: Path, run_ranks: Any, rank: int) -> None:
    run = make_run(tmp_path / "run", *LONG)
    assert train(run_ranks, run, 2, [SignalTo(rank, step=2)]) == [Exit.START_AGAIN] * 2
    assert decision(run, 1)["reason"] == "signal: SIGTERM"
    for reader in (0, 1):
        assert [step["s"] for step in records(run, 1, "step", reader)] == [0, 1, 2]
    found = find(run.checkpoints)
    assert found is not None
    assert found[1].step == 3


@pytest.mark.dist
def test_control_files_save_and_stop_a_run(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *LONG)
    wishes = [
        WriteControl(run.control / "save", "", step=0),
        WriteControl(run.control / "deadline", str(time.time() + 3600), step=1),
        WriteControl(run.control / "deadline", "soon", step=3),
    ]
    assert train(run_ranks, run, 1, wishes) == [Exit.NEEDS_PERSON]
    assert decision(run, 1)["reason"] == "control/deadline holds 'soon', not seconds since the epoch"
    assert [event["s"] for event in records(run, 1, "ckpt") if event["ph"] == "committed"] == [1, 4]
    assert not (run.control / "save").exists()


@pytest.mark.dist
def test_a_budget_is_not_passed_and_not_left_over_a_restart(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *LONG)
    assert train(run_ranks, run, 2, [StopAfter(run, 3), SlowSteps(0.2)]) == [Exit.START_AGAIN] * 2
    (run.control / "stop").unlink()
    before_ns = paid_before_ns(run)
    # The second start takes about as long as the first, however busy the machine is; then there are two seconds left.
    limit_s = (2.5 * before_ns / 1e9) + 2 * 2.0
    run = make_run(run.path, *LONG, f"budget.device_hours={limit_s / 3600}")
    assert train(run_ranks, run, 2, [SlowSteps(0.2)]) == [Exit.DONE] * 2
    stop = decision(run, 2)
    assert "budget.device_hours" in stop["reason"]
    opened_ns = max(row["t"] for row in read_rows(run.paid_file) if row["ph"] == "open")
    steps, (close,) = records(run, 2, "step"), records(run, 2, "close")
    longest_ns = max(step["t1"] - step["t0"] for step in steps)
    spent_ns = before_ns + 2 * (close["t"] - opened_ns)
    assert spent_ns <= limit_s * 1e9
    # Two steps: the one that would have passed and its spread; a third is kept for the last save and evaluation, whose
    # length is a guess until they have been measured.
    assert spent_ns + 2 * 3 * longest_ns + 2 * (close["t"] - stop["t"]) > limit_s * 1e9, "it stopped too early"
    assert sorted(losses(run)) == list(range(len(losses(run)))), "no step twice, none left out"


@pytest.mark.dist
def test_a_target_loss_ends_a_run(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *LONG, "eval.every_steps=2", "objective.target_loss=100")
    assert train(run_ranks, run, 2) == [Exit.DONE] * 2
    assert decision(run, 1)["reason"].startswith("target loss 100 reached")
    assert sorted(losses(run)) == [0, 1]


@pytest.mark.dist
def test_patience_counts_over_a_restart(tmp_path: Path, run_ranks: Any) -> None:
    rule = ("eval.every_steps=1", "objective.patience_evals=3", "objective.min_gain=100")
    run = make_run(tmp_path / "run", *LONG, *rule)
    assert train(run_ranks, run, 1, [StopAfter(run, 2)]) == [Exit.START_AGAIN]
    (run.control / "stop").unlink()
    assert train(run_ranks, run, 1) == [Exit.DONE]
    assert decision(run, 2)["reason"] == "no better by 100 for 3 evaluations"
    assert sorted(losses(run)) == [0, 1, 2, 3], "the first evaluation is the best, the next three gain nothing"


@pytest.mark.dist
def test_a_damaged_newer_checkpoint_takes_no_good_ones_place(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, "checkpoint.every_steps=2")
    assert train(run_ranks, run, 1) == [Exit.DONE]
    assert sorted(path.name for path in run.checkpoints.glob("step-*")) == ["step-4", "step-6"]
    (run.checkpoints / "step-6" / ".metadata").unlink()
    run = make_run(tmp_path / "run", *SMALL, "checkpoint.every_steps=1", "checkpoint.keep_last=1")
    assert train(run_ranks, run, 1, [StopAfter(run, 5)]) == [Exit.START_AGAIN]
    found = find(run.checkpoints, say=lambda line: None)
    assert found is not None
    assert found[1].step == 5
    (run.control / "stop").unlink()
    assert train(run_ranks, run, 1) == [Exit.DONE]
    assert sorted(path.name for path in run.checkpoints.glob("step-*")) == ["step-6", "step-6.damaged"], "set aside"
