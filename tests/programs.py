"""Small programs for distributed tests: any layout of one decoder, built on real ranks as the engine builds it."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.state import Tree, state_tree
from argosy.layout.layout import Layout
from argosy.layout.work import Work
from argosy.models.build import build
from argosy.models.decoder import Decoder
from argosy.models.split import owned
from argosy.optim.build import build_optimizer
from argosy.parallel.mesh import build_mesh
from argosy.parallel.program import Program
from argosy.parallel.translate import translate
from argosy.recipe.model_table import ModelTable
from argosy.recipe.schema import LayoutTable, OptimizerTable, PrecisionTable

VOCAB, LENGTH = 61, 16
SEED = 5
CPU = torch.device("cpu")


def model_table(**fields: object) -> ModelTable:
    """Two blocks with an odd vocabulary and width: nothing divides evenly by 2, 3 or 4 by chance."""
    shape = {"layers": 2, "hidden_size": 20, "heads": 2, "kv_heads": 1, "ffn_size": 28, "bias": "qkv", "qk_norm": True}
    return ModelTable(**{**shape, **fields})


@dataclass(frozen=True)
class Split:
    """A layout to test."""

    dp: int = 1
    fsdp: int = 1
    tp: int = 1
    pp: int = 1
    reshard: bool = True
    schedule: str | None = None
    virtual: int | None = None
    stage_layers: tuple[int, ...] | None = None
    order: tuple[str, ...] | None = None
    zero: int | None = None
    recompute: Literal["none", "selective", "full"] = "none"
    compile: bool = False
    update_in_backward: bool = False
    prefetch: int = 1
    reduce: Literal["fp32", "bf16"] = "fp32"
    optimizer: OptimizerTable = field(default_factory=lambda: OptimizerTable(kind="adamw", learning_rate=0.01))

    @property
    def ranks(self) -> int:
        return self.dp * self.fsdp * self.tp * self.pp

    @property
    def layout(self) -> Layout:
        fields = {
            "dp": self.dp,
            "fsdp": self.fsdp,
            "tp": self.tp,
            "pp": self.pp,
            "reshard_after_forward": self.reshard,
            "schedule": self.schedule,
            "virtual_stages": self.virtual,
            "stage_layers": self.stage_layers,
            "order": self.order,
            "zero": self.zero,
            "recompute": self.recompute,
            "compile": self.compile,
            "update_in_backward": self.update_in_backward,
            "prefetch": self.prefetch,
        }
        table = LayoutTable(**{name: value for name, value in fields.items() if value is not None})
        return Layout.from_recipe(table, self.ranks)

    def __str__(self) -> str:
        degrees = [f"{axis}{getattr(self, axis)}" for axis in ("pp", "dp", "fsdp", "tp") if getattr(self, axis) > 1]
        words = [self.schedule, "uneven" if self.stage_layers else None, "-".join(self.order) if self.order else None]
        words += [f"zero{self.zero}" if self.zero else None, None if self.reshard else "kept"]
        words += [None if self.recompute == "none" else f"recompute-{self.recompute}", self.compile and "compile"]
        return " ".join([*degrees, *(word for word in words if word)]) or "one"


def make_program(split: Split, table: ModelTable, seed: int = SEED, micro_batches: int = 1) -> Program:
    """This rank's program with initial weights; needs a default process group when there are several ranks."""
    layout = split.layout
    mesh = build_mesh(layout, "cpu") if layout.world_size > 1 else None
    # As many sequences as there are micro-batches on each rank: how many are in one does not matter to the program
    layout = replace(layout, micro_batch_sequences=1)
    work = Work(table, VOCAB, layout, micro_batches * layout.data_ranks, LENGTH)
    return translate(work, mesh, PrecisionTable(reduce=split.reduce), seed=seed, device=CPU)


def make_state(split: Split, table: ModelTable, seed: int = SEED) -> tuple[Program, torch.optim.Optimizer, Tree]:
    """A program with its optimizer and the tree that a checkpoint takes."""
    program = make_program(split, table, seed)
    optimizer = build_optimizer(program.named_parameters(), split.optimizer)
    rank = dist.get_rank() if dist.is_initialized() else 0
    return program, optimizer, state_tree(program.named_parameters(), optimizer, rank)


def manifest_of(step: int, ranks: int = 1, **training: Any) -> Manifest:
    """A manifest as the engine hands it to a save."""
    identity = {"run_id": "r", "generation": 1, "learning_hash": "l", "data_digest": "d", "code_version": "0"}
    return Manifest(step=step, world_size=ranks, layout={}, created_wall_s=0.0, training=training, **identity)


def whole(tensor: Tensor) -> Tensor:
    """A copy of the full tensor, gathered from its shards where it has any."""
    if not isinstance(tensor, DTensor):
        return tensor.detach().clone()
    # DTensor.full_tensor is wrong where FSDP2 divides unevenly what tensor parallelism has divided.
    full = torch.zeros(tensor.shape, dtype=tensor.dtype)
    full[torch.meshgrid(*owned(tensor), indexing="ij")] = tensor.detach().to_local()
    for axis, placement in enumerate(tensor.placements):
        if not placement.is_replicate():
            dist.all_reduce(full, group=tensor.device_mesh.get_group(axis))
    return full


def whole_parameters(model: nn.Module | Program) -> dict[str, Tensor]:
    return {name: whole(parameter) for name, parameter in model.named_parameters()}


def reference_model(table: ModelTable, dtype: torch.dtype, seed: int = SEED) -> Decoder:
    """One process's model with the initial weights, in `dtype` throughout."""
    program = make_program(Split(), table, seed)
    model = build(table, VOCAB, dtype, device="cpu").to(dtype)
    model.load_state_dict(dict(program.named_parameters()))
    return model
