"""A stop that comes in an evaluation does not wait for its end, and the result is as if it had not come."""

from pathlib import Path
from typing import Any

import pytest

from argosy.errors import Exit
from argosy.registry.run_folder import RunFolder
from argosy.training.observers import Observer
from tiny_runs import SMALL, digests, losses, make_run, records, train

EVALS = ("eval.every_steps=2", "eval.tokens=8192", "eval.final_tokens=8192")


class AskInEvaluation(Observer):
    """Asks for a stop when the evaluation after `step` begins."""

    def __init__(self, run: RunFolder, step: int):
        self.file = run.control / "stop"
        self.step = step

    def on_phase(self, name: str, step: int) -> None:
        if name == "eval" and step == self.step:
            self.file.write_text("preempted")


@pytest.mark.dist
@pytest.mark.parametrize("step", [2, 6])
def test_an_evaluation_is_broken_off_and_made_after_the_restart(tmp_path: Path, run_ranks: Any, step: int) -> None:
    run, twin = make_run(tmp_path / "run", *SMALL, *EVALS), make_run(tmp_path / "twin", *SMALL, *EVALS)
    assert train(run_ranks, run, 2, [AskInEvaluation(run, step)]) == [Exit.START_AGAIN] * 2
    assert step not in [row["s"] for row in records(run, 1, "eval")], "it was made to its end"
    (run.control / "stop").unlink()
    assert train(run_ranks, run, 2) == [Exit.DONE] * 2
    assert train(run_ranks, twin, 2) == [Exit.DONE] * 2
    evaluations = [(row["s"], row["loss"]) for attempt in (1, 2) for row in records(run, attempt, "eval")]
    assert evaluations == [(row["s"], row["loss"]) for row in records(twin, 1, "eval")]
    assert losses(run) == losses(twin)
    assert digests(run, 6) == digests(twin, 6)
