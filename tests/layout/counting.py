"""Counts the collectives of a real step, for the comparison with the inventory."""

import inspect
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from argosy.data.batch import Batch
from argosy.models.build import build
from argosy.optim.build import build_optimizer
from argosy.parallel.mesh import build_mesh
from argosy.parallel.program import translate
from argosy.recipe.schema import PrecisionTable
from argosy.training.step import train_step
from programs import CPU, SEED, VOCAB, Split, model_table

SEQUENCE, SEQUENCES = 6, 12


class _NoPhases:
    """Phases that time nothing."""

    def __init__(self) -> None:
        import contextlib

        self.nothing = contextlib.nullcontext()

    def __call__(self, *_: object) -> Any:
        return self.nothing

    def local_gradients(self, *_: object) -> None: ...
    def update(self, *_: object) -> None: ...


def counted_step(split: Split, micro_batches: int, reduce: str) -> tuple[dict[tuple[str, str, int], int], int, int]:
    """({(axis, op, bytes): count}, parameters held, optimizer elements) of one step on this rank."""
    layout = split.layout
    mesh = build_mesh(layout, "cpu")
    axis_of = {mesh.get_group(axis): axis for axis in ("dp", "fsdp") if layout.axis_sizes[axis] > 1}
    precision = PrecisionTable(compute="bf16", reduce=reduce)
    program = translate(build(model_table(), VOCAB, torch.bfloat16), layout, mesh, precision, seed=SEED, device=CPU)
    optimizer: Optimizer = build_optimizer(program.model, split.optimizer, fused=False)
    per_rank = SEQUENCES // layout.data_ranks // micro_batches
    generator = torch.Generator().manual_seed(dist.get_rank())
    batches = [
        Batch(
            *(torch.randint(VOCAB, (per_rank, SEQUENCE), generator=generator) for _ in range(2)),
            torch.zeros(per_rank, dtype=torch.int64),
            loss_tokens=per_rank * SEQUENCE,
        )
        for _ in range(micro_batches)
    ]
    seen: Counter[tuple[str, str, int]] = Counter()

    def note(op: str, tensor: torch.Tensor, group: Any) -> None:
        # The default group carries the engine's own control messages, which are no part of a layout
        if group in axis_of:
            seen[axis_of[group], op, tensor.numel() * tensor.element_size()] += 1

    # As FSDP2 of torch 2.11 to 2.14 calls them; one may be built on another, so only the outer one counts
    sizes = {
        "all_gather_into_tensor": ("all_gather", 0),
        "all_gather_single": ("all_gather", 0),
        "reduce_scatter_tensor": ("reduce_scatter", 1),
        "reduce_scatter_single": ("reduce_scatter", 1),
        "all_reduce": ("all_reduce", 0),
    }
    originals = {name: getattr(dist, name) for name in sizes if hasattr(dist, name)}
    inside = [False]

    def counted(name: str) -> Any:
        op, whole = sizes[name]
        signature = inspect.signature(originals[name])

        def call(*args: Any, **rest: Any) -> Any:
            if inside[0]:
                return originals[name](*args, **rest)
            given = signature.bind(*args, **rest).arguments
            note(op, list(given.values())[whole], given.get("group"))
            inside[0] = True
            try:
                return originals[name](*args, **rest)
            finally:
                inside[0] = False

        return call

    for name in originals:
        setattr(dist, name, counted(name))
    try:
        train_step(program, optimizer, batches, step=1, global_loss_tokens=SEQUENCES * SEQUENCE, learning_rate=0.01,
                   clip_norm=1.0, z_loss=0.0, device=CPU, phases=_NoPhases())  # type: ignore[arg-type]  # fmt: skip
    finally:
        for name, function in originals.items():
            setattr(dist, name, function)
    held = sum((p.to_local() if hasattr(p, "to_local") else p).numel() for p in program.parameters())
    states = sum(
        (v.to_local() if hasattr(v, "to_local") else v).numel()
        for state in optimizer.state.values()
        for name, v in state.items()
        if name in ("exp_avg", "exp_avg_sq")
    )
    return dict(seen), held, states
