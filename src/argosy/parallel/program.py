"""The distributed program of a layout: what one rank runs in place of ``loss.backward()`` on the whole model.

Three forms, chosen by the layout alone:

one rank   the plain model
dp only    whole replicas, gradients summed in one flat all-reduce (:mod:`argosy.parallel.replicate`)
fsdp       FSDP2 per block; with dp > 1 also replicas of the sharded state (HSDP)

All of them leave, after the last micro-batch, gradients that are the *sum* over all ranks and micro-batches.
The caller scales its loss by the global number of loss tokens, so uneven padding on ranks or micro-batches
gives the gradient of one big batch.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from argosy.layout.layout import Layout
from argosy.models.decoder import Decoder
from argosy.models.init import init_weights
from argosy.parallel.replicate import FlatGradients
from argosy.recipe.schema import PrecisionTable

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Program:
    """One rank's share of a model, with its gradients."""

    def __init__(self, model: Decoder, replicas: FlatGradients | None):
        self.model = model
        self._replicas = replicas
        self._sharded = model if isinstance(model, FSDPModule) else None

    def parameters(self) -> Iterable[nn.Parameter]:
        return self.model.parameters()

    def clear_gradients(self) -> None:
        if self._replicas is not None:
            self._replicas.clear()
        else:
            self.model.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradient of `loss`; the `last` micro-batch of a step also sums over ranks."""
        if self._sharded is not None:
            self._sharded.set_requires_gradient_sync(last)
            self._sharded.set_is_last_backward(last)
        loss.backward()
        if last and self._replicas is not None:
            self._replicas.sum_over_ranks()


def translate(
    model: Decoder,
    layout: Layout,
    mesh: dist.DeviceMesh | None,
    precision: PrecisionTable,
    *,
    seed: int,
    device: torch.device,
) -> Program:
    """Turn a model on the meta device into this rank's program with initial weights on `device`.

    `mesh` is None for a single rank. The weights do not depend on the layout: each rank computes the values of
    just the elements that it holds.
    """
    if layout.compile:
        for block in model.blocks.values():
            block.compile()
    if layout.fsdp > 1:
        assert mesh is not None
        _shard(model, mesh["dp", "fsdp"] if layout.dp > 1 else mesh["fsdp"], layout, precision)
    model.to_empty(device=device)
    init_weights(model, seed)
    replicas = None
    if layout.fsdp == 1 and layout.dp > 1:
        assert mesh is not None
        replicas = FlatGradients(list(model.parameters()), mesh.get_group("dp"), DTYPES[precision.reduce])
    return Program(model, replicas)


def _shard(model: Decoder, mesh: dist.DeviceMesh, layout: Layout, precision: PrecisionTable) -> None:
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[precision.compute], reduce_dtype=DTYPES[precision.reduce])
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=layout.reshard_after_forward)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is already divided by the global token count. A divisor of exactly 1 is a plain sum,
            # which gloo does only when told to.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
