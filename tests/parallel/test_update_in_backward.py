"""Updating within the backward pass makes the same weights, with few gradients at a time."""

import dataclasses
from typing import Any

import pytest
import torch
import torch.distributed as dist
from equivalence import Form, share
from torch import Tensor

from argosy.errors import UsageError
from argosy.journal.recorder import NULL
from argosy.layout.layout import Layout
from argosy.optim.build import build_optimizer
from argosy.parallel.control import sum_over_ranks
from argosy.recipe.load import load_recipe
from argosy.recipe.schema import OptimizerTable
from argosy.training.phases import Phases
from argosy.training.step import train_step
from programs import CPU, Split, make_program, whole_parameters
from tiny_runs import RECIPE

FORM = Form(steps=3)


def three_steps(split: Split, kind: str) -> tuple[dict[str, Tensor], list[float], int]:
    """Weights, gradient norms, and the most gradients that existed when one weight was updated."""
    group = dist.group.WORLD if split.ranks > 1 else None
    program = make_program(split, FORM.model)
    optimizer = build_optimizer(program.named_parameters(), OptimizerTable(kind=kind, learning_rate=0.01))
    updated = list(program.parameters())  # FSDP2 shows others while it has a block gathered
    most = 0
    update = optimizer.step

    def watched(*args: Any) -> None:
        nonlocal most
        most = max(most, sum(p.grad is not None for p in updated))
        update(*args)

    optimizer.step = watched  # type: ignore[method-assign]
    if split.update_in_backward:
        program.update_in_backward(optimizer)
    rank = split.layout.data_rank(dist.get_rank()) if group else 0
    norms = []
    for step in range(FORM.steps):
        result = train_step(
            program, optimizer, share(step, rank, split.layout.data_ranks, 1), step=step, global_loss_tokens=99,
            learning_rate=0.01, clip_norm=0.0, z_loss=0.0, device=CPU, phases=Phases(NULL),
            total=lambda values: sum_over_ranks(values, group),
        )  # fmt: skip
        norms.append(result.grad_norm)
    return whole_parameters(program), norms, most


@pytest.mark.dist
@pytest.mark.parametrize(
    ("split", "kind"),
    [(Split(), "adamw"), (Split(fsdp=2), "adamw"), (Split(fsdp=2), "muon"), (Split(dp=2, fsdp=2), "sgd")],
    ids=str,
)
def test_same_weights_with_few_gradients_at_a_time(run_ranks: Any, split: Split, kind: str) -> None:
    plain, within = split, dataclasses.replace(split, update_in_backward=True)
    before = run_ranks(split.ranks, three_steps, plain, kind)[0]
    after = run_ranks(split.ranks, three_steps, within, kind)[0]
    for name, weight in before[0].items():
        assert torch.equal(after[0][name], weight), name
    assert after[1] == pytest.approx(before[1], rel=1e-6)
    assert before[2] == len(before[0])
    assert after[2] == 1


def test_what_cannot_be_is_refused() -> None:
    for fields in ({"tp": 2}, {"dp": 2}, {"fsdp": 2, "zero": 1}, {"pp": 2, "schedule": "1f1b"}):
        with pytest.raises(UsageError, match="update_in_backward"):
            Layout(update_in_backward=True, **fields)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="clip_norm"):
        load_recipe(RECIPE, ["layout.update_in_backward=true"])
