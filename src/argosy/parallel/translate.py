"""Turns a model's description and a layout into this rank's program."""

import torch
import torch.distributed as dist

from argosy.layout.stages import rank_stages, schedule_of, stage_blocks
from argosy.layout.layout import Layout
from argosy.models.build import build
from argosy.models.decoder import Decoder, Part
from argosy.models.init import init_weights
from argosy.parallel.links import Links
from argosy.parallel.mesh import Mesh
from argosy.parallel.pipeline import Pipeline
from argosy.parallel.precision import DTYPES
from argosy.parallel.program import Axes, Program
from argosy.parallel.recompute import recompute
from argosy.parallel.shard import shard_state
from argosy.parallel.tensor import divide_tensors
from argosy.recipe.schema import ModelTable, PrecisionTable


def translate(
    table: ModelTable,
    vocab_size: int,
    layout: Layout,
    mesh: Mesh | None,
    precision: PrecisionTable,
    *,
    micro_batches: int,
    seed: int,
    device: torch.device,
) -> Program:
    """This rank's program with initial weights on `device`; collective over all ranks of `mesh`.

    `mesh` is None for a single rank; `micro_batches` of a step matter to a pipeline alone. Only this rank's part of
    the model is ever made, and the weights do not depend on the layout: each rank computes the values of just the
    elements that it holds.
    """
    here = mesh.coordinate("pp") if mesh is not None else 0
    models = {}
    for number in rank_stages(layout, here):
        model = build(table, vocab_size, DTYPES[precision.compute], part=part_of(layout, table, number))
        models[number] = _distribute(model, layout, mesh, precision)
        model.to_empty(device=device)
        init_weights(model, seed)
    pipeline = None
    if layout.pp > 1:
        assert mesh is not None
        pipeline = Pipeline(schedule_of(layout, micro_batches), models, Links(mesh.group("pp"), mesh.down, here))
    program = Program(models, _axes(layout, mesh), pipeline, DTYPES[precision.reduce], device)
    program.after_change()
    return program


def part_of(layout: Layout, table: ModelTable, number: int) -> Part:
    """What stage `number` has of the model."""
    blocks = stage_blocks(layout, table.layers)[number]
    return Part(blocks, first=number == 0, last=number == layout.stages - 1)


def _distribute(model: Decoder, layout: Layout, mesh: Mesh | None, precision: PrecisionTable) -> Decoder:
    """Divide a model on meta, whose blocks are compiled and recomputed as the layout says."""
    if layout.tp > 1:
        assert mesh is not None
        divide_tensors(model, mesh.sub("tp"))
    blocks = list(model.blocks.values())
    if layout.recompute != "none":
        recompute(blocks, layout.recompute)
    if layout.compile:
        for block in blocks:
            block.compile()
    if layout.fsdp > 1:
        assert mesh is not None
        shard_state(model, mesh.sub("dp", "fsdp") if layout.dp > 1 else mesh.sub("fsdp"), layout, precision)
    return model


def _axes(layout: Layout, mesh: Mesh | None) -> Axes:
    if mesh is None:
        return Axes()
    replicas = layout.dp > 1 and layout.fsdp == 1
    return Axes(
        dp=mesh.group("dp") if replicas else None,
        tp=mesh.group("tp") if layout.tp > 1 else None,
        pp=mesh.group("pp") if layout.pp > 1 else None,
    )
