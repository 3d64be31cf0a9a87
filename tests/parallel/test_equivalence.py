"""A layout changes nothing but speed: gradients, clipping and ten SGD steps of each equal one process in float64."""

import dataclasses
from functools import cache
from typing import Any

import equivalence
import pytest
import torch
from equivalence import CLIP_NORM, Form, Taken, disagreements, take_plain_steps, take_steps
from matrix import DEEP, ROWS, WIDE, Row
from torch.distributed.fsdp import FSDPModule

from argosy.optim.clip import global_norm
from argosy.parallel.program import Program
from argosy.parallel.replicate import FlatGradients
from programs import Split


@cache
def truth(form: Form) -> tuple[Taken, Taken]:
    """The plain steps in float64 and in fp32."""
    return take_plain_steps(form, torch.float64), take_plain_steps(form, torch.float32)


def take_all_forms(row: Row) -> list[Taken]:
    return [take_steps(row.split, form) for form in row.forms]


@pytest.mark.dist
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_layout_is_the_training_of_one_process(run_ranks: Any, row: Row) -> None:
    by_rank = run_ranks(row.split.ranks, take_all_forms, row)
    for index, form in enumerate(row.forms):
        exact, plain = truth(form)
        assert exact.norm > CLIP_NORM, "the test must clip"
        for rank, taken in enumerate(forms[index] for forms in by_rank):
            assert disagreements(taken, exact, plain) == [], (rank, form)
        assert {name for forms in by_rank for name in forms[index].initial} == plain.initial.keys()


@pytest.mark.dist
@pytest.mark.parametrize("split", [Split(dp=2, reduce="bf16"), Split(fsdp=2, reduce="bf16")], ids=str)
def test_gradients_are_summed_in_the_dtype_that_was_asked_for(run_ranks: Any, split: Split) -> None:
    taken, exact = run_ranks(2, take_steps, split, Form())[0], truth(Form())[0]
    true, off = (
        torch.cat([part.flatten() for part in parts])
        for parts in (exact.gradients.values(), [taken.gradients[name] - g for name, g in exact.gradients.items()])
    )
    # bf16 rounds to 2^-9; errors of that size, and not smaller, are what the option is for.
    assert 2**-12 < float(off.norm() / true.norm()) < 2**-8


def mean_of_means(program: Program) -> None:
    """Divide by this rank's own count, as if all ranks had equally many tokens."""
    right = equivalence.train_step

    def wrong(*args: Any, global_loss_tokens: int, **kwargs: Any) -> Any:
        own = sum(batch.loss_tokens for batch in args[2])
        return right(*args, global_loss_tokens=own * torch.distributed.get_world_size(), **kwargs)

    equivalence.train_step = wrong


def no_reduction(program: Program) -> None:
    """Keep each rank's own gradient; under FSDP, which cannot be told so, only that of rank 0."""
    FlatGradients.sum_over_ranks = lambda self: None
    if isinstance(program.models[0], FSDPModule) and torch.distributed.get_rank() > 0:
        run = program.forward_backward
        program.forward_backward = lambda batches, *, divisor, **rest: run(batches, divisor=1e30 * divisor, **rest)


def averaged(program: Program) -> None:
    """What FSDP does unless it is told otherwise."""
    for module in program.models[0].modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(torch.distributed.get_world_size())


def last_micro_batch_only(program: Program) -> None:
    """Forget what was added up before the last micro-batch."""
    run = program.forward_backward

    def forgetful(batches: Any, **rest: Any) -> torch.Tensor:
        for batch in batches:
            program.clear_gradients()
            loss = run([batch], **rest)
        return loss

    program.forward_backward = forgetful


def local_norm(program: Program) -> None:
    """Clip by the norm of this rank's shards."""
    program.gradient_norm = lambda p=2.0: global_norm(program.parameters(), p, all_reduce=lambda *args: None)


def own_piece_only(program: Program) -> None:
    """Leave weights that tensor parallelism keeps whole with the gradient of this rank's piece of the sequence."""
    program.sum_gradients = lambda: None


def summed_twice(program: Program) -> None:
    """Count whole weights once per tensor-parallel rank too often."""
    once = program.sum_gradients

    def twice() -> None:
        once()
        once()

    program.sum_gradients = twice


def bias_on_every_rank(program: Program) -> None:
    """Add the bias of a divided sum on each rank."""
    for module in program.models[0].modules():
        if hasattr(module, "bias_share"):
            module.bias_share = 1


def copies_apart(program: Program) -> None:
    """Let the two copies of a tied embedding go their own ways."""
    program._tied = None


def loss_of_each_stage(program: Program) -> None:
    """Scale by the number of stages, as if each had a loss."""
    run = program.forward_backward
    program.forward_backward = lambda batches, *, divisor, **rest: run(batches, divisor=divisor / 2, **rest)


def norm_of_own_stage(program: Program) -> None:
    """Clip each stage by its own norm."""
    program._axes = dataclasses.replace(program._axes, pp=None)


BIASED = Form(fields=(*WIDE, ("bias", "all")))
STAGED = Form(3, tied=True, fields=DEEP)
MUTATIONS = [
    (own_piece_only, Split(tp=2), Form(fields=WIDE)),
    (summed_twice, Split(tp=2), Form(fields=WIDE)),
    (bias_on_every_rank, Split(tp=2), BIASED),
    (copies_apart, Split(pp=2), STAGED),
    (loss_of_each_stage, Split(pp=2), STAGED),
    (norm_of_own_stage, Split(pp=2), STAGED),
    (mean_of_means, Split(dp=2), Form()),
    (mean_of_means, Split(fsdp=2), Form(3)),
    (no_reduction, Split(dp=2), Form()),
    (no_reduction, Split(fsdp=2), Form()),
    (averaged, Split(dp=2, fsdp=2), Form()),
    (last_micro_batch_only, Split(dp=2), Form(3)),
    (local_norm, Split(fsdp=2), Form()),
]


@pytest.mark.dist
@pytest.mark.parametrize(("bug", "split", "form"), MUTATIONS, ids=lambda part: getattr(part, "__name__", str(part)))
def test_a_planted_bug_is_seen(run_ranks: Any, bug: Any, split: Split, form: Form) -> None:
    taken = run_ranks(split.ranks, take_steps, split, form, bug)[0]
    assert disagreements(taken, *truth(form))
