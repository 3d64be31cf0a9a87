"""Tensor parallelism with sequence parallelism: each matrix and, between the matrices, each sequence is divided.

Attention and MLP gather the sequence, compute with their share of heads or inner units, and hand back their share of
a sum, of which every rank keeps its own piece of the sequence: one all-gather and one reduce-scatter in place of each
all-reduce, and norms and residual stream cost 1 / n (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2).
Embedding and output layer are divided by vocabulary.

Shards are DTensors, for FSDP2, checkpoints and initial weights. The arithmetic runs on local tensors: DTensor's
dispatch costs about 100 µs per operation, and it knows none of our fused ones. What torch lacks as a differentiable
collective over one dim without DTensor is the pair below.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import Placement, Replicate, Shard, distribute_tensor

from argosy.models.attention import Attention
from argosy.models.collectives import all_gather, reduce_scatter
from argosy.models.decoder import Decoder
from argosy.models.embedding import Embedding, VocabularyShard
from argosy.models.linear import Linear
from argosy.models.mlp import GELU, SwiGLU
from argosy.models.split import Split

_SEQUENCE = 1
"""The dim of activations [B, S, hidden] that is divided between the matrices."""


def divide_tensors(model: Decoder, mesh: dist.DeviceMesh) -> None:
    """Give this rank of the one-dimensional `mesh` its share of every weight of `model`, which is on meta.

    Every parameter becomes a DTensor over `mesh`; those that no module divides are whole on each rank, and there each
    rank computes the gradient of its piece of the sequence: their gradients have to be summed over `mesh`.
    """
    group, rank, ranks = mesh.get_group(), mesh.get_local_rank(), mesh.size()
    for module in model.modules():
        for name, split in getattr(module, "tensor_split", {}).items():
            _divide(module.get_submodule(name), split, mesh)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if not hasattr(parameter, "device_mesh"):
                _place(module, name, Replicate(), mesh)

    model.sequence_share = (rank, ranks)
    most = -(-model.vocab_size // ranks)
    shard = VocabularyShard(group, first=rank * most, most=most, vocabulary=model.vocab_size)
    model.vocabulary_shard = shard
    for module in model.modules():
        if isinstance(module, Embedding):
            module.shard = shard
    # Where activations change between whole sequences and pieces:
    if model.part.first:
        assert model.embedding is not None
        model.embedding.register_forward_hook(lambda module, inputs, x: scatter(x, group))
    for module in model.modules():
        if isinstance(module, (Attention, SwiGLU, GELU)):
            module.register_forward_pre_hook(lambda module, inputs: (gather(inputs[0], group), *inputs[1:]))
            module.register_forward_hook(lambda module, inputs, x: scatter(x, group))
    if model.norm is not None:
        model.norm.register_forward_hook(lambda module, inputs, x: gather(x, group))


def _divide(module: nn.Module, split: Split, mesh: dist.DeviceMesh) -> None:
    _place(module, "weight", Shard(int(split)), mesh)
    if getattr(module, "bias", None) is None:
        return
    _place(module, "bias", Shard(0) if split is Split.ROWS else Replicate(), mesh)
    if isinstance(module, Linear) and split is Split.COLUMNS:
        module.bias_share = int(mesh.get_local_rank() == 0)


def _place(module: nn.Module, name: str, placement: Placement, mesh: dist.DeviceMesh) -> None:
    whole = module.get_parameter(name)
    shard = distribute_tensor(whole.detach(), mesh, [placement], src_data_rank=None)
    module.register_parameter(name, nn.Parameter(shard, requires_grad=whole.requires_grad))


def gather(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The whole sequence on every rank: [B, S / n, D] to [B, S, D]. Gradients are summed over ranks."""
    return _Gather.apply(x, group)


def scatter(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Of a sum over ranks, this rank's piece of the sequence: [B, S, D] to [B, S / n, D]."""
    return _Scatter.apply(x, group)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_gather(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _reduce_scatter(grads[0], ctx.group), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _reduce_scatter(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _all_gather(grads[0], ctx.group), None


def _all_gather(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    return all_gather(x, group).movedim(0, _SEQUENCE).flatten(_SEQUENCE, _SEQUENCE + 1)


def _reduce_scatter(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    return reduce_scatter(x.unflatten(_SEQUENCE, (dist.get_world_size(group), -1)).movedim(_SEQUENCE, 0), group)
