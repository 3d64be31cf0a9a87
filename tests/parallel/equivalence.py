"""One training step of any layout beside the same step of one process in float64."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from argosy.data.batch import NO_LOSS, Batch
from argosy.journal.recorder import NULL
from argosy.models.decoder import Decoder
from argosy.optim.build import build_optimizer
from argosy.parallel.control import sum_over_ranks
from argosy.parallel.program import Program
from argosy.recipe.model_table import ModelTable
from argosy.recipe.schema import OptimizerTable
from argosy.training.phases import Phases
from argosy.training.step import train_step
from programs import CPU, VOCAB, Split, make_program, model_table, reference_model, whole, whole_parameters

SEQUENCES, LENGTH = 12, 16
CLIP_NORM = 0.5
SGD = OptimizerTable(kind="sgd", learning_rate=0.3, weight_decay=0.1)


@dataclass(frozen=True)
class Form:
    """What else may differ between two ways to take the same step."""

    micro_batches: int = 1
    tied: bool = False
    steps: int = 1
    fields: tuple[tuple[str, object], ...] = ()
    """Of the model table."""
    documents: bool = False
    """Several documents in each sequence."""

    @property
    def model(self) -> ModelTable:
        return model_table(tied_embeddings=self.tied, **dict(self.fields))


def global_batch(step: int) -> tuple[Tensor, Tensor]:
    """Tokens and targets [12, 16]. Sequence i has loss on 1 to 16 tokens, sequence 5 on none: no two ranks and no
    two micro-batches have equally many."""
    random = torch.Generator().manual_seed(step)
    stream = torch.randint(VOCAB, (SEQUENCES, LENGTH + 1), generator=random)
    targets = stream[:, 1:].clone()
    for sequence in range(SEQUENCES):
        kept = 0 if sequence == 5 else 1 + (7 * sequence + step) % LENGTH
        targets[sequence, kept:] = NO_LOSS
    return stream[:, :-1], targets


def lengths(sequence: int) -> list[int]:
    """Of the documents in a sequence."""
    return [5 + sequence % 4, 6 - sequence % 3, LENGTH - 11 - sequence % 4 + sequence % 3]


def share(step: int, rank: int, ranks: int, micro_batches: int, documents: bool = False) -> list[Batch]:
    """The micro-batches of one rank: its slice of the global batch."""
    sizes = [torch.tensor(lengths(sequence)) for sequence in range(SEQUENCES)]
    segments = torch.stack([torch.arange(3).repeat_interleave(size) for size in sizes])
    positions = torch.stack([torch.cat([torch.arange(int(n)) for n in size]) for size in sizes])
    parts = [part.tensor_split(ranks)[rank] for part in (*global_batch(step), segments, positions)]
    return [
        Batch(
            x,
            y,
            torch.empty(0),
            loss_tokens=int((y != NO_LOSS).sum()),
            segments=numbers if documents else None,
            positions=places if documents else None,
        )
        for x, y, numbers, places in zip(*(part.tensor_split(micro_batches) for part in parts), strict=True)
    ]


@dataclass(frozen=True)
class Taken:
    """What a program did in the steps of a form."""

    initial: dict[str, Tensor]
    gradients: dict[str, Tensor]
    """Of the first step, before clipping."""
    norm: float
    after_one: dict[str, Tensor]
    at_end: dict[str, Tensor]
    losses: list[float]


def watch_gradients(program: Program) -> dict[str, Tensor]:
    """The whole gradients of the first step, summed over ranks and not yet clipped; filled in when they are there."""
    first: dict[str, Tensor] = {}
    norm = program.gradient_norm

    def watched(p: float = 2.0) -> Tensor:
        first.update({} if first else {name: whole(q.grad) for name, q in program.named_parameters()})
        return norm(p)

    program.gradient_norm = watched  # type: ignore[method-assign]
    return first


def take_steps(split: Split, form: Form, mutate: Callable[[Program], None] | None = None) -> Taken:
    """The engine's own step, on this rank; `mutate` plants a bug first."""
    layout = split.layout
    program = make_program(split, form.model, micro_batches=form.micro_batches)
    group = dist.group.WORLD if split.ranks > 1 else None
    rank = layout.data_rank(dist.get_rank(group) if group is not None else 0)
    optimizer = build_optimizer(program.named_parameters(), SGD)
    initial = whole_parameters(program)
    if mutate:
        mutate(program)
    gradients = watch_gradients(program)
    results, losses, after_one = [], [], {}
    for step in range(form.steps):
        batches = share(step, rank, layout.data_ranks, form.micro_batches, form.documents)
        mine = sum(batch.loss_tokens for batch in batches) if program.reports else 0
        tokens = sum_over_ranks([mine], group)[0]
        result = train_step(
            program,
            optimizer,
            batches,
            step=step,
            global_loss_tokens=int(tokens),
            learning_rate=SGD.learning_rate,
            clip_norm=CLIP_NORM,
            z_loss=1e-3,
            total=lambda values: sum_over_ranks(values, group),
            device=CPU,
            phases=Phases(NULL),
        )
        results.append(result)
        losses.append(result.loss_sum / tokens)
        after_one = after_one or whole_parameters(program)
    return Taken(initial, gradients, results[0].grad_norm, after_one, whole_parameters(program), losses)


def take_plain_steps(form: Form, dtype: torch.dtype) -> Taken:
    """The same steps as a textbook writes them: one process, one batch, no part of the engine but the model."""
    model = reference_model(form.model, dtype)
    initial, losses = whole_parameters(model), []
    gradients: dict[str, Tensor] = {}
    after_one: dict[str, Tensor] = {}
    first_norm = 0.0
    for step in range(form.steps):
        tokens, targets = global_batch(step)
        count = int((targets != NO_LOSS).sum())
        loss, grads = _gradients(model, tokens, targets, count, form.documents)
        losses.append(loss)
        norm = torch.stack([g.norm() for g in grads.values()]).norm()
        gradients = gradients or {name: g.clone() for name, g in grads.items()}
        first_norm = first_norm or float(norm)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                decay = SGD.weight_decay if parameter.ndim >= 2 else 0.0
                step_by = grads[name] * min(1.0, CLIP_NORM / float(norm)) + decay * parameter
                parameter -= SGD.learning_rate * step_by
        after_one = after_one or whole_parameters(model)
    return Taken(initial, gradients, first_norm, after_one, whole_parameters(model), losses)


def _gradients(
    model: Decoder, tokens: Tensor, targets: Tensor, count: int, documents: bool
) -> tuple[float, dict[str, Tensor]]:
    """Mean loss in nats and gradients of the objective, from logits by torch's own cross-entropy."""
    model.zero_grad()
    if documents:  # each by itself
        alone = [text for i, row in enumerate(tokens) for text in row.split(lengths(i))]
        logits = torch.cat([_logits(model, text[None])[0] for text in alone])
    else:
        logits = _logits(model, tokens).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, targets.flatten(), ignore_index=NO_LOSS, reduction="sum") / count
    kept = (targets.flatten() != NO_LOSS).to(logits.dtype)
    z = (logits.logsumexp(-1).square() * kept).sum() / count
    (loss + 1e-3 * z).backward()
    return float(loss.detach()), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def _logits(model: Decoder, tokens: Tensor) -> Tensor:
    """The decoder's logits in its own dtype: its forward without targets rounds them to fp32."""
    hidden: list[Tensor] = []
    handle = model.norm.register_forward_hook(lambda module, inputs, output: hidden.append(output))
    model(tokens)
    handle.remove()
    head = (model.head or model.embedding).weight
    return hidden[0] @ head.T


def disagreements(taken: Taken, exact: Taken, plain: Taken) -> list[str]:
    """Where `taken`, of one rank, is not the training of one process in float64; empty when it is.

    Start bit-equal; a gradient within 1e-5 of its norm and 4 times the error of one process in fp32; norm and losses
    within 1e-6. A rank of a pipeline has only some of the parameters.
    """
    found = []
    for name in taken.gradients:
        true = exact.gradients[name]
        error, size, floor = (
            float((taken.gradients[name].double() - true).norm()),
            float(true.norm()),
            1e-8 * exact.norm,
        )
        if not torch.equal(taken.initial[name], plain.initial[name]):
            found.append(f"{name} starts from other bits")
        if not error <= 1e-5 * size + floor:
            found.append(f"gradient of {name}: off by {error / size:.1e}")
        elif error > 4 * float((plain.gradients[name].double() - true).norm()) + floor:
            found.append(f"gradient of {name}: more than 4 times the error of one process")
    if not abs(taken.norm / exact.norm - 1) <= 1e-6:
        found.append(f"norm {taken.norm} is not {exact.norm}")
    for when, ours, true_values in (
        ("the first step", taken.after_one, exact.after_one),
        ("the last", taken.at_end, exact.at_end),
    ):
        for name, value in ours.items():
            true, start = true_values[name], exact.initial[name]
            moved = float((true - start).norm())
            if not float((value.double() - true).norm()) <= 1e-4 * moved + 1e-6 * float(start.norm()):
                found.append(f"{name} after {when}")
    off = max(abs(ours / true - 1) for ours, true in zip(taken.losses, exact.losses, strict=True))
    if not off <= 1e-6:
        found.append(f"losses off by {off:.1e}")
    return found
