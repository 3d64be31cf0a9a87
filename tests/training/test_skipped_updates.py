"""A gradient that is not finite on any one rank changes nothing on any rank, and too many in a row end the run."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from argosy.checkpoint.manifest import read_manifest
from argosy.errors import Exit
from argosy.training.observers import Observer
from tiny_runs import SMALL, digests, make_run, records, train


class BadGradient(Observer):
    """Puts `value` into one gradient element of one rank at each of `steps`."""

    def __init__(self, rank: int, steps: Iterable[int], value: float = math.nan):
        self.rank = rank
        self.steps = set(steps)
        self.value = value

    def on_local_grads(self, step: int, parameters: Iterable[nn.Parameter]) -> None:
        if step not in self.steps or (dist.is_initialized() and dist.get_rank() != self.rank):
            return
        gradient = list(parameters)[-1].grad
        assert gradient is not None
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        with torch.no_grad():
            local.view(-1)[-1] = self.value


@pytest.mark.dist
@pytest.mark.parametrize(
    ("layout", "rank", "value"), [(("layout.fsdp=2",), 1, math.nan), ((), 1, math.nan), ((), 0, math.inf)]
)
def test_one_bad_rank_skips_the_update_of_all_without_a_trace(
    tmp_path: Path, run_ranks: Any, layout: tuple[str, ...], rank: int, value: float
) -> None:
    each_step = ("checkpoint.every_steps=1", "checkpoint.keep_last=9")
    run = make_run(tmp_path / "run", *SMALL, *each_step, *layout)
    assert train(run_ranks, run, 2, [BadGradient(rank, {3}, value)]) == [Exit.DONE] * 2
    assert digests(run, 4) == digests(run, 3), "weights, moments and step counters are as before"
    assert digests(run, 3) != digests(run, 2)
    assert digests(run, 5) != digests(run, 4), "training goes on"
    for reader in (0, 1):
        steps = records(run, 1, "step", reader)
        assert [step["s"] for step in steps if step.get("x")] == [3]
        assert steps[3]["g"] is None, "the norm is not known"
        assert math.isfinite(steps[3]["l"])
    training = read_manifest(run.checkpoints / "step-6").training
    assert (training["skipped"], training["skipped_in_row"], training["loss_tokens"]) == (1, 0, 5 * 384)


@pytest.mark.dist
def test_too_many_in_a_row_end_the_run_for_a_person_to_look_at(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, "resilience.skipped_updates_limit=3")
    # One, then a good step, then three in a row.
    assert train(run_ranks, run, 2, [BadGradient(1, {0, 2, 3, 4})]) == [Exit.NEEDS_PERSON] * 2
    (stop,) = records(run, 1, "decision")
    assert (stop["reason"], stop["exit"]) == ("3 non-finite updates in a row", Exit.NEEDS_PERSON)
    assert read_manifest(run.checkpoints / "step-5").training["skipped"] == 4
