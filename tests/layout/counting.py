"""What a rank really holds and sends in a step, for the comparison with the inventory."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from argosy.data.batch import Batch
from argosy.journal.counting import CollectiveCounter
from argosy.layout.work import Work
from argosy.models.split import local
from argosy.optim.build import build_optimizer
from argosy.parallel.groups import use_stamped_groups
from argosy.parallel.mesh import build_mesh
from argosy.parallel.program import Program
from argosy.parallel.translate import translate
from argosy.recipe.schema import OptimizerTable, PrecisionTable
from argosy.training.observers import Observer
from argosy.training.phases import Phases
from argosy.training.step import train_step
from programs import CPU, SEED

_DTYPES = {2: "bf16", 4: "fp32"}


@dataclass(frozen=True)
class Counted:
    """Of one rank."""

    collectives: dict[tuple[str, str, int], int]
    """By (axis, op, bytes), without the engine's own control messages."""
    parameters: int
    gradients: int
    optimizer_states: int
    most_in_flight: int | None
    """Stage activations held at once; None without a pipeline."""


class _Gradients(Observer):
    """Elements of the gradients that this rank holds after backward."""

    def __init__(self, program: Program):
        self.program = program
        self.elements = 0

    def on_local_grads(self, step: int, parameters: Iterable[nn.Parameter]) -> None:
        self.elements = _elements(p.grad for p in _held(self.program) if p.grad is not None)


def _held(program: Program) -> list[nn.Parameter]:
    """The weights of a rank; of two tied copies one."""
    return list({name: p for model in program.models.values() for name, p in model.named_parameters()}.values())


def _elements(tensors: Iterable[torch.Tensor]) -> int:
    return sum(local(tensor.detach()).numel() for tensor in tensors)


@contextmanager
def counted_groups() -> Iterator[CollectiveCounter]:
    """Default groups that report to the counter that is yielded, in place of those of `run_ranks`."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    dist.destroy_process_group()
    counter = CollectiveCounter()
    dist.init_process_group(
        use_stamped_groups(counter), store=dist.PrefixStore("counted", store), rank=rank, world_size=ranks
    )
    yield counter


def counted_steps(works: list[Work], optimizer: OptimizerTable) -> list[Counted]:
    """One real step of each of `works` on this rank, by the engine's own code; all are for as many ranks."""
    with counted_groups() as counter:
        return [_counted_step(work, optimizer, counter) for work in works]


def _counted_step(work: Work, table: OptimizerTable, counter: CollectiveCounter) -> Counted:
    layout = work.layout
    mesh = build_mesh(layout, "cpu")
    precision = PrecisionTable(compute=_DTYPES[work.compute_bytes], reduce=_DTYPES[work.reduce_bytes])
    program = translate(work, mesh, precision, seed=SEED, device=CPU)
    optimizer = build_optimizer(program.named_parameters(), table)
    batches = random_batches(work, layout.data_rank(dist.get_rank()))
    gradients = _Gradients(program)
    counter.counts.clear()
    train_step(program, optimizer, batches, step=1, global_loss_tokens=100, learning_rate=0.01, clip_norm=1.0,
               z_loss=0.0, device=CPU, phases=Phases(counter, [gradients]))  # fmt: skip
    states = [value for state in optimizer.state.values() for value in state.values()]
    pipeline = program._pipeline
    return Counted(
        collectives=dict(counter.counts),
        parameters=_elements(_held(program)),
        gradients=gradients.elements,
        optimizer_states=_elements(v for v in states if isinstance(v, torch.Tensor) and v.ndim > 0),
        most_in_flight=None if pipeline is None else pipeline.most_in_flight,
    )


def random_batches(work: Work, data_rank: int) -> list[Batch]:
    """The micro-batches of a data-parallel rank."""
    random = torch.Generator().manual_seed(data_rank)
    shape = work.sequences, work.sequence_length
    return [
        Batch(
            *(torch.randint(work.vocab_size, shape, generator=random) for _ in range(2)),
            torch.zeros(work.sequences, dtype=torch.int64),
            loss_tokens=work.sequences * work.sequence_length,
        )
        for _ in range(work.micro_batches)
    ]
