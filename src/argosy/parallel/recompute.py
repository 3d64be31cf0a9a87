"""Recomputation: a block's activations are dropped after forward and computed again in backward.

The block's own ``forward`` is replaced, not the module: hooks of FSDP2 around it do not run again, those of tensor
parallelism inside it do, and no name changes.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

_DEAR = frozenset(
    {
        "aten::mm",
        "aten::bmm",
        "aten::addmm",
        "aten::baddbmm",
        "mkldnn::_linear_pointwise",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
    }
)
"""Matrix products and attention: what takes long to compute for the bytes that it fills."""


def recompute(blocks: Iterable[nn.Module], what: Literal["selective", "full"]) -> None:
    """Let `blocks` keep only their input (full), or that and the results of dear operations (selective)."""
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}  # nothing here is random
    if what == "selective":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, **options)


def _policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    dear = isinstance(operation, torch._ops.OpOverload) and operation.name().split(".")[0] in _DEAR
    return CheckpointPolicy.MUST_SAVE if dear else CheckpointPolicy.PREFER_RECOMPUTE
