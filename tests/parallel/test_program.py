"""What holds within a step of any layout: copies agree, norms are of the whole, activations as many as in theory."""

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from equivalence import SGD, Form, share, take_plain_steps
from matrix import PIPELINE, WIDE, Row
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from argosy.data.batch import NO_LOSS, Batch
from argosy.journal.recorder import NULL
from argosy.layout.stages import schedule_of
from argosy.models.cpu import applies
from argosy.models.loss import linear_cross_entropy
from argosy.models.split import local
from argosy.optim.build import build_optimizer
from argosy.parallel.control import sum_over_ranks
from argosy.parallel.program import Program
from argosy.parallel.tensor import gather, scatter
from argosy.training.phases import Phases
from argosy.training.step import train_step
from programs import CPU, Split, make_program, whole_parameters


def one_backward(split: Split, form: Form) -> Program:
    program = make_program(split, form.model, micro_batches=form.micro_batches)
    rank = split.layout.data_rank(dist.get_rank())
    batches = share(0, rank, split.layout.data_ranks, form.micro_batches)
    tokens = sum_over_ranks([sum(b.loss_tokens for b in batches) if program.reports else 0], dist.group.WORLD)[0]
    program.clear_gradients()
    program.forward_backward(batches, divisor=int(tokens), z_loss=1e-3, timed=lambda name: Phases.nothing)
    program.sum_gradients()
    return program


# -- copies -------------------------------------------------------------------------------------------


def copies(split: Split, form: Form) -> dict[str, tuple[tuple[tuple[int, ...], ...], Tensor]]:
    """By parameter: which indices of it this rank has, and its gradient there."""
    from argosy.models.split import owned

    program = one_backward(split, form)
    return {
        name: (tuple(tuple(index.tolist()) for index in owned(p)), local(p.grad).clone())
        for name, p in program.named_parameters()
    }


@pytest.mark.dist
@pytest.mark.parametrize(
    "split",
    [Split(dp=2, tp=2), Split(fsdp=2, tp=2), Split(dp=2, fsdp=2), Split(pp=2, tp=2), Split(pp=2, dp=2)],
    ids=str,
)
def test_copies_have_the_same_gradient_on_every_rank(run_ranks: Any, split: Split) -> None:
    form = Form(3, tied=True, fields=(*WIDE, ("bias", "all"), ("layers", 2)))
    seen: dict[tuple[str, Any], list[Tensor]] = {}
    for by_name in run_ranks(split.ranks, copies, split, form):
        for name, (where, gradient) in by_name.items():
            seen.setdefault((name, where), []).append(gradient)
    assert max(len(same) for same in seen.values()) > 1, "there must be copies to compare"
    for (name, _), same in seen.items():
        assert all(torch.equal(gradient, same[0]) for gradient in same), name


# -- norms --------------------------------------------------------------------------------------------


def norms(split: Split, form: Form, orders: list[float]) -> list[float]:
    program = one_backward(split, form)
    return [float(program.gradient_norm(p)) for p in orders]


@pytest.mark.dist
@pytest.mark.parametrize(
    "split", [Split(fsdp=2, tp=2), Split(pp=2, tp=2), Split(pp=2, fsdp=2), Split(fsdp=2, zero=1)], ids=str
)
def test_norms_of_any_order_are_of_the_whole_gradient(run_ranks: Any, split: Split) -> None:
    form, orders = Form(3, tied=True, fields=WIDE), [1.0, 2.0, math.inf]
    whole = torch.cat([g.flatten() for g in take_plain_steps(form, torch.float64).gradients.values()])
    for found in run_ranks(split.ranks, norms, split, form, orders):
        for order, norm in zip(orders, found, strict=True):
            assert norm == pytest.approx(float(torch.linalg.vector_norm(whole, order)), rel=1e-5)


# -- activations --------------------------------------------------------------------------------------


def held(row: Row) -> int:
    form = row.forms[0]
    program = one_backward(row.split, form)
    assert program._pipeline is not None
    return program._pipeline.most_in_flight


@pytest.mark.dist
@pytest.mark.parametrize("row", [row for row in PIPELINE if row.split.ranks == row.split.pp][2:], ids=str)
def test_a_rank_holds_as_many_activations_as_its_schedule_says(run_ranks: Any, row: Row) -> None:
    schedule = schedule_of(row.split.layout, row.forms[0].micro_batches)
    assert run_ranks(row.split.ranks, held, row) == [schedule.max_in_flight(rank) for rank in range(row.split.pp)]


# -- updates that must not be made --------------------------------------------------------------------


def poisoned(split: Split, form: Form, guilty: int) -> tuple[bool, bool]:
    """(whether an update was made, whether weights changed) when one rank's own gradient is NaN."""
    program = make_program(split, form.model, micro_batches=form.micro_batches)
    optimizer = build_optimizer(program.named_parameters(), SGD)
    before = whole_parameters(program)
    if dist.get_rank() == guilty:
        run = program.forward_backward

        def broken(*args: Any, **rest: Any) -> Tensor:
            loss = run(*args, **rest)
            model = next(iter(program.models.values()))
            local(next(model.parameters()).grad).view(-1)[0] = torch.nan
            return loss

        program.forward_backward = broken  # type: ignore[method-assign]
    rank = split.layout.data_rank(dist.get_rank())
    result = train_step(
        program, optimizer, share(0, rank, split.layout.data_ranks, form.micro_batches), step=0, global_loss_tokens=99,
        learning_rate=0.1, clip_norm=1.0, z_loss=0.0, device=CPU, phases=Phases(NULL),
        total=lambda values: sum_over_ranks(values, dist.group.WORLD),
    )  # fmt: skip
    after = whole_parameters(program)
    return result.applied, any(not torch.equal(after[name], before[name]) for name in before)


@pytest.mark.dist
@pytest.mark.parametrize("split", [Split(pp=2, tp=2), Split(fsdp=2, tp=2), Split(fsdp=2, zero=1)], ids=str)
def test_a_gradient_that_is_not_finite_on_one_rank_changes_nothing_on_any(run_ranks: Any, split: Split) -> None:
    form = Form(3, fields=WIDE)
    assert run_ranks(split.ranks, poisoned, split, form, split.ranks - 1) == [(False, False)] * split.ranks


# -- collectives of sequences -------------------------------------------------------------------------


def through(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A tensor that is not contiguous, gathered and scattered, with gradients that are not contiguous either."""
    mine = x[dist.get_rank()].transpose(0, 2).requires_grad_()
    whole = gather(mine, dist.group.WORLD)
    whole.backward(torch.ones_like(whole).transpose(1, 2).contiguous().transpose(1, 2))
    again = whole.detach().transpose(0, 2).contiguous().transpose(0, 2).requires_grad_()
    piece = scatter(again, dist.group.WORLD)
    piece.backward(torch.ones_like(piece).transpose(1, 2).contiguous().transpose(1, 2))
    assert mine.grad is not None
    assert again.grad is not None
    return whole.detach(), mine.grad, piece.detach(), again.grad


@pytest.mark.dist
def test_collectives_take_tensors_that_are_not_contiguous(run_ranks: Any) -> None:
    x = torch.arange(2 * 5 * 4 * 3, dtype=torch.float32).view(2, 5, 4, 3)
    whole = torch.cat([part.transpose(0, 2) for part in x], dim=1)
    for rank, (gathered, gradient, piece, back) in enumerate(run_ranks(2, through, x)):
        assert torch.equal(gathered, whole)
        assert torch.equal(gradient, torch.full_like(gradient, 2.0)), "each rank adds its gradient"
        assert torch.equal(piece, 2 * x[rank].transpose(0, 2))
        assert torch.equal(back, torch.ones_like(back))


# -- memory -------------------------------------------------------------------------------------------


def test_a_chunked_loss_needs_an_eighth_of_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """At vocabulary 128k, counted in bytes of living tensors: the loss' own gradients included."""
    tokens, hidden, vocabulary = 3072, 16, 128_256
    x = torch.randn(tokens, hidden, requires_grad=True)
    weight = (torch.randn(vocabulary, hidden) * 0.02).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,))
    with _Living() as living:
        linear_cross_entropy(x, weight, targets).objective.backward()
    assert applies(x)
    assert living.most_bytes < tokens * vocabulary * 4 / 8


class _Living(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts bytes of storages that operations make and that are still referenced."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most_bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import weakref

        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if not isinstance(tensor, Tensor):
                continue
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._known:
                self._known.add(key)
                self.now += storage.nbytes()
                self.most_bytes = max(self.most_bytes, self.now)
                weakref.finalize(storage, self._gone, key, storage.nbytes())
        return out

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


# -- compilation --------------------------------------------------------------------------------------


def test_a_compiled_block_has_the_gradients_of_an_eager_one() -> None:
    form = Form(fields=WIDE)
    (batch,) = share(0, 0, 1, 1)
    found = []
    for split in (Split(), Split(compile=True)):
        program = make_program(split, form.model)
        program.clear_gradients()
        program.forward_backward([batch], divisor=batch.loss_tokens, z_loss=0.0, timed=lambda name: Phases.nothing)
        found.append({name: p.grad for name, p in program.named_parameters()})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-6 * float(gradient.norm()), msg=name)


def test_a_batch_without_loss_has_zero_gradients() -> None:
    program = make_program(Split(), Form().model)
    tokens = torch.zeros(2, 16, dtype=torch.int64)
    program.clear_gradients()
    empty = Batch(tokens, torch.full_like(tokens, NO_LOSS), torch.zeros(2), loss_tokens=0)
    loss = program.forward_backward([empty], divisor=1, z_loss=1e-3, timed=lambda name: Phases.nothing)
    assert float(loss) == 0.0
    parameters: list[nn.Parameter] = list(program.parameters())
    assert all(p.grad is not None and not p.grad.any() for p in parameters if not isinstance(p, DTensor))
