"""FSDP2 of one model or one pipeline stage: state divided over ranks, gathered a block at a time."""

import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from argosy.layout.layout import Layout
from argosy.models.decoder import Decoder
from argosy.parallel.precision import DTYPES
from argosy.recipe.schema import PrecisionTable


def shard_state(model: Decoder, mesh: dist.DeviceMesh, layout: Layout, precision: PrecisionTable) -> None:
    """Divide each block, and all that is outside of the blocks together, over `mesh` (fsdp, or dp and fsdp).

    In a pipeline the weights stay gathered during a step: to gather them for each of many micro-batches again would
    cost more than it saves.
    """
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[precision.compute], reduce_dtype=DTYPES[precision.reduce])
    reshard = layout.reshard_after_forward and layout.pp == 1
    blocks = list(model.blocks.values())
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    if layout.prefetch > 1:  # one ahead is what FSDP2 does by itself
        for index, block in enumerate(blocks):
            assert isinstance(block, FSDPModule)
            block.set_modules_to_forward_prefetch(_sharded(blocks[index + 1 : index + 1 + layout.prefetch]))
            block.set_modules_to_backward_prefetch(_sharded(blocks[max(0, index - layout.prefetch) : index][::-1]))
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is already divided by the global token count. A divisor of exactly 1 is a plain sum,
            # which gloo does only when told to.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _sharded(blocks: list[nn.Module]) -> list[FSDPModule]:
    return [block for block in blocks if isinstance(block, FSDPModule)]


def sum_gradients(model: FSDPModule) -> None:
    """Sum and divide the gradients that several backward passes left whole; free the gathered weights.

    FSDP2 does so in the last backward pass by itself, but in a pipeline the last one to reach a stage may be one of
    several halves. These are the calls of torch's own pipeline runtime, which has no public name for them either.
    """
    model.set_is_last_backward(True)
    model.set_reshard_after_backward(True)
    model.set_requires_gradient_sync(True)
    root = fully_shard.state(model)  # type: ignore[attr-defined]
    for state in root._state_ctx.all_states:
        for group in state._fsdp_param_groups:
            group.post_backward()
    root._root_post_backward_final_callback()


def keep_gradients_whole(model: FSDPModule) -> None:
    """Let backward passes add up gradients, and leave summing over ranks to :func:`sum_gradients`."""
    model.set_is_last_backward(False)
    model.set_reshard_after_backward(False)
    model.set_requires_gradient_sync(False)
