"""Turns a model's description and a layout into this rank's program."""

import torch

from argosy.layout.activations import recomputed_blocks
from argosy.layout.layout import Layout
from argosy.layout.stages import rank_stages, stage_blocks
from argosy.layout.work import Work
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
from argosy.recipe.model_table import ModelTable
from argosy.recipe.schema import PrecisionTable


def translate(work: Work, mesh: Mesh | None, precision: PrecisionTable, *, seed: int, device: torch.device) -> Program:
    """This rank's program for steps of `work`, with initial weights on `device`; collective over all ranks of `mesh`.

    `mesh` is None for a single rank. Only this rank's part of the model is ever made, and the weights do not depend
    on the layout: each rank computes the values of just the elements that it holds.
    """
    layout = work.layout
    here = mesh.coordinate("pp") if mesh is not None else 0
    recomputed = recomputed_blocks(work, mesh.rank if mesh is not None else 0)
    models = {}
    for number in rank_stages(layout, here):
        part = part_of(layout, work.model, number)
        model = build(work.model, work.vocab_size, DTYPES[precision.compute], part=part)
        _distribute(model, layout, mesh, precision, recomputed)
        model.to_empty(device=device)
        init_weights(model, seed)
        models[number] = model
    pipeline = None
    if work.schedule is not None:
        assert mesh is not None
        assert mesh.down is not None
        pipeline = Pipeline(work.schedule, models, Links(mesh.group("pp"), mesh.down, here))
    program = Program(models, _axes(layout, mesh), pipeline, DTYPES[precision.reduce], device)
    program.after_change()
    return program


def part_of(layout: Layout, table: ModelTable, number: int) -> Part:
    """What stage `number` has of the model."""
    blocks = stage_blocks(layout, table.layers)[number]
    return Part(blocks, first=number == 0, last=number == layout.stages - 1)


def _distribute(
    model: Decoder, layout: Layout, mesh: Mesh | None, precision: PrecisionTable, recomputed: frozenset[int]
) -> None:
    """Divide a model on meta, whose blocks are compiled and recomputed as the layout says."""
    if layout.tp > 1:
        assert mesh is not None
        divide_tensors(model, mesh.sub("tp"))
    if layout.recompute != "none":
        recompute((block for number, block in model.blocks.items() if int(number) in recomputed), layout.recompute)
    if layout.compile:
        for block in model.blocks.values():
            block.compile()
    if layout.zero > 1:
        assert mesh is not None
        shard_state(model, mesh.sub("dp", "fsdp") if layout.dp > 1 else mesh.sub("fsdp"), layout, precision)


def _axes(layout: Layout, mesh: Mesh | None) -> Axes:
    if mesh is None:
        return Axes()
    zero = None
    if layout.zero == 1:
        zero = mesh.sub("fsdp", "tp") if layout.tp > 1 else mesh.sub("fsdp")
    return Axes(
        dp=mesh.group("dp") if layout.dp > 1 and layout.zero < 2 else None,
        zero=zero,
        tp=mesh.group("tp") if layout.tp > 1 else None,
        pp=mesh.group("pp") if layout.pp > 1 else None,
    )
