"""`argosy train --dry-run`: one step of one rank of any world, on tensors without values and groups without partners.

The rank's program is built and run by the engine's own code; process groups record each collective that it issues and
answer at once. So the record is what a real step does, for thousands of ranks, in seconds and without their memory.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

from argosy.data.batch import Batch
from argosy.errors import UsageError
from argosy.journal.counting import CollectiveCounter
from argosy.launch.devices import usable_gpus
from argosy.layout.fits import check_batch, check_model
from argosy.layout.inventory import Inventory, inventory
from argosy.layout.layout import Layout
from argosy.layout.work import Work
from argosy.models import loss
from argosy.models.split import local
from argosy.optim.build import build_optimizer
from argosy.parallel.groups import use_stamped_groups
from argosy.parallel.mesh import Mesh, build_mesh
from argosy.parallel.program import Program
from argosy.parallel.translate import translate
from argosy.recipe.load import load_recipe
from argosy.recipe.schema import Recipe

CPU = torch.device("cpu")


@dataclass(frozen=True)
class DryRun:
    """What a rank did in its step."""

    rank: int
    world_size: int
    collectives: dict[tuple[str, str, int], int]
    """How often each (axis, operation, bytes) was issued."""
    parameters: int
    """Elements that the rank holds."""
    told: Inventory
    """What `argosy plan explain` says of this rank."""
    build_s: float
    step_s: float

    @property
    def as_told(self) -> bool:
        """Whether the inventory is right, to the byte."""
        return self.collectives == self.told.counts() and self.parameters == self.told.parameters

    def to_json(self) -> dict[str, Any]:
        """Stable keys."""
        return {
            "schema": "argosy.dry-run/1",
            "rank": self.rank,
            "world_size": self.world_size,
            "coordinates": self.told.coordinates,
            "parameters": self.parameters,
            "collectives": [
                {"axis": axis, "op": op, "bytes": size, "count": count}
                for (axis, op, size), count in sorted(self.collectives.items())
            ],
            "inventory": asdict(self.told),
            "equals_inventory": self.as_told,
            "build_s": self.build_s,
            "step_s": self.step_s,
        }


def dry_run(recipe_path: Path, sets: Sequence[str], world_size: int, rank: int) -> DryRun:
    """One step of `rank` of `world_size` ranks that train a recipe; this process must not have process groups yet.

    Raises UsageError for an impossible layout, and when only a tokenizer file knows the vocabulary.
    """
    recipe = load_recipe(recipe_path, sets)
    if recipe.vocab_size is None:
        raise UsageError("only the tokenizer file knows the vocabulary", where="model", do="set model.vocab_size")
    if rank >= world_size:
        raise UsageError(f"there is no rank {rank} of {world_size}", where="--rank", do=f"use 0 to {world_size - 1}")
    layout = Layout.for_recipe(recipe, world_size)
    check_batch(layout, recipe.batch_sequences)
    check_model(layout, recipe.model, recipe.data.sequence_length, recipe.vocab_size)
    on_gpus = recipe.run.device == "cuda" or (recipe.run.device == "auto" and usable_gpus() > 0)
    work = Work.from_recipe(recipe, layout, recipe.vocab_size, "cuda" if on_gpus else "cpu")
    return dry_step(work, recipe, rank)


def dry_step(work: Work, recipe: Recipe, rank: int) -> DryRun:
    """One step of `rank`; precision, optimizer and seed are those of `recipe`."""
    counter, world_size = CollectiveCounter(), work.layout.world_size
    start = time.perf_counter()
    with _groups(counter, rank, world_size):
        mesh = build_mesh(work.layout, "cpu") if world_size > 1 else None
        with _chunks_of(work.device), _Valueless():
            program, optimizer = _build(work, recipe, mesh)
            batches = [_batch(work) for _ in range(work.micro_batches)]
            counter.counts.clear()
            built = time.perf_counter()
            _step(program, optimizer, batches, recipe.objective.z_loss)
        held = {name: parameter for model in program.models.values() for name, parameter in model.named_parameters()}
        parameters = sum(local(parameter.detach()).numel() for parameter in held.values())
    return DryRun(
        rank=rank,
        world_size=world_size,
        collectives=dict(counter.counts),
        parameters=parameters,
        told=inventory(work, rank),
        build_s=built - start,
        step_s=time.perf_counter() - built,
    )


def _build(work: Work, recipe: Recipe, mesh: Mesh | None) -> tuple[Program, torch.optim.Optimizer]:
    # Machine code of a compiled block, and an update within backward, want values; neither changes a collective
    work = replace(work, layout=replace(work.layout, compile=False, update_in_backward=False))
    program = translate(work, mesh, recipe.precision, seed=recipe.run.seed, device=CPU)
    return program, build_optimizer(program.named_parameters(), recipe.optimizer)


def _step(program: Program, optimizer: torch.optim.Optimizer, batches: Sequence[Batch], z_loss: float) -> None:
    """As :func:`argosy.training.step.train_step`, without what looks at values."""
    program.clear_gradients()
    program.forward_backward(batches, divisor=1, z_loss=z_loss, timed=lambda name: nullcontext())
    program.sum_gradients()
    program.gradient_norm()
    optimizer.step()
    program.after_change()


class _Valueless(FakeTensorMode):
    """Fake tensors for all but the mesh, whose numbers decide the program, and the model while it is on meta."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        real = not any(isinstance(tensor, FakeTensor) for tensor in tensors)
        device = kwargs.get("device")
        if device is None:
            on_meta = bool(tensors) and all(tensor.is_meta for tensor in tensors)
        else:
            on_meta = torch.device(device).type == "meta"
        if real and (on_meta or (tensors and not any(tensor.is_meta for tensor in tensors))):
            return func(*args, **kwargs)
        if func is torch.ops.aten.empty_like.default and type(args[0]) in (torch.Tensor, torch.nn.Parameter):
            # What a module swaps for its parameter on meta; FakeTensorMode would keep a reference that forbids it
            like, empty = args[0], torch.ops.aten.empty.memory_format
            return super().__torch_dispatch__(empty, (), (list(like.shape),), {"dtype": like.dtype, "device": device})
        return super().__torch_dispatch__(func, types, args, kwargs)


@contextmanager
def _groups(counter: CollectiveCounter, rank: int, world_size: int) -> Iterator[None]:
    """A default process group whose partners are not there."""
    if dist.is_initialized():
        raise RuntimeError("a dry run needs a process without process groups")
    backend = use_stamped_groups(counter, fake=True)
    dist.init_process_group(backend, store=dist.HashStore(), rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def _chunks_of(device: str) -> Iterator[None]:
    """Let the loss take the chunks that it takes on `device`: fake tensors have to be on a CPU, for FSDP2."""
    own = loss._CPU_ELEMENTS
    loss._CPU_ELEMENTS = loss._GPU_ELEMENTS if device == "cuda" else own
    try:
        yield
    finally:
        loss._CPU_ELEMENTS = own


def _batch(work: Work) -> Batch:
    tokens = torch.zeros(work.sequences, work.sequence_length, dtype=torch.int64)
    return Batch(tokens, tokens, tokens[:, 0], loss_tokens=tokens.numel())
