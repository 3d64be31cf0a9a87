"""A collective that a rank skips or makes differently is an error on all ranks, before any weight changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from equivalence import SGD, Form, share

from argosy.journal.recorder import NULL
from argosy.layout.layout import Layout
from argosy.optim.build import build_optimizer
from argosy.parallel.groups import control_group, use_stamped_groups
from argosy.parallel.guard import CollectiveGuard, CollectiveMismatch
from argosy.parallel.program import Program
from argosy.parallel.rendezvous import meet
from argosy.training.guarding import Guarding
from argosy.training.phases import Phases
from argosy.training.step import train_step
from programs import CPU, Split, make_program
from tiny_runs import leave_default_group

FORM = Form(fields=(("heads", 4), ("kv_heads", 4), ("head_dim", 6)))
GUILTY = 1


def skip_one(program: Program) -> None:
    """Leave out the last of the collectives after backward."""
    program.sum_gradients = lambda: None  # type: ignore[method-assign]


def another_size(program: Program) -> None:
    """Sum something else first."""
    sum_gradients = program.sum_gradients

    def wrong() -> None:
        dist.all_reduce(torch.zeros(5), group=program._axes.tp or program._axes.dp)
        sum_gradients()

    program.sum_gradients = wrong  # type: ignore[method-assign]


def guarded_step(folder: Path, split: Split, bug: Any) -> tuple[str, int | None, bool]:
    """What was raised, whom it names, and whether the weights are still those of the start."""
    rank = dist.get_rank()
    leave_default_group()
    guard = CollectiveGuard()
    stamped = use_stamped_groups(NULL, guard=guard)
    store = meet(folder / "store", rank, split.ranks, 30)
    dist.init_process_group(stamped, store=store, rank=rank, world_size=split.ranks)
    control = control_group()
    program = make_program(split, FORM.model)
    optimizer = build_optimizer(program.named_parameters(), SGD)
    before = {name: p.detach().to_local().clone() if hasattr(p, "to_local") else p.detach().clone()
              for name, p in program.named_parameters()}  # fmt: skip
    if bug is not None and rank == GUILTY:
        bug(program)
    layout: Layout = split.layout
    said, guilty = "", None
    try:
        train_step(
            program, optimizer, share(0, layout.data_rank(rank), layout.data_ranks, 1), step=0, global_loss_tokens=99,
            learning_rate=0.1, clip_norm=1.0, z_loss=0.0, device=CPU, phases=Phases(NULL, [Guarding(guard)]),
        )  # fmt: skip
    except CollectiveMismatch as error:
        said, guilty = str(error), error.guilty_rank
    except RuntimeError as error:  # a peer in another group was told, and has gone
        said = f"a peer has gone: {error}"
    same = all(
        torch.equal(p.detach().to_local() if hasattr(p, "to_local") else p.detach(), before[name])
        for name, p in program.named_parameters()
    )
    del control
    return said, guilty, same


@pytest.mark.dist
@pytest.mark.parametrize("split", [Split(dp=3), Split(tp=2), Split(fsdp=2, tp=2)], ids=str)
@pytest.mark.parametrize("bug", [skip_one, another_size, None])
def test_out_of_step(tmp_path: Path, run_ranks: Any, split: Split, bug: Any) -> None:
    told = run_ranks(split.ranks, guarded_step, tmp_path, split, bug)
    if bug is None:
        assert all(said == "" and not same for said, _, same in told), "a clean step is not stopped"
        return
    assert all(said and same for said, _, same in told), "every rank ends before its update"
    affected = [(said, guilty) for said, guilty, _ in told if "has gone" not in said]
    assert len(affected) >= 2, "more than the guilty rank must know"
    for said, guilty in affected:
        assert "out of step" in said
        assert f"rank {GUILTY} " in said
        assert guilty in (GUILTY, None)
    if split.dp == 3:
        assert {guilty for _, guilty in affected} == {GUILTY}, "two of three agree"
