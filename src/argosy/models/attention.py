"""Causal self-attention with grouped key/value heads."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from argosy.models import cpu
from argosy.models.linear import Linear
from argosy.models.norm import RMSNorm
from argosy.models.rope import rotate
from argosy.models.split import Split
from argosy.recipe.model_table import ModelTable


class Attention(nn.Module):
    """Multi-head (kv_heads = heads) or grouped-query attention; each query sees itself and what is before it."""

    tensor_split: ClassVar = {"q": Split.ROWS, "k": Split.ROWS, "v": Split.ROWS, "o": Split.COLUMNS}

    def __init__(self, config: ModelTable):
        super().__init__()
        assert config.head_dim is not None
        assert config.kv_heads is not None
        self.head_dim = config.head_dim
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        bias = config.bias != "none"
        self.q = Linear(config.hidden_size, queries, bias=bias)
        self.k = Linear(config.hidden_size, keys, bias=bias)
        self.v = Linear(config.hidden_size, keys, bias=bias)
        self.o = Linear(queries, config.hidden_size, bias=config.bias == "all")
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None, segments: Tensor | None = None) -> Tensor:
        """[B, S, hidden] to [B, S, hidden].

        rotation: as of :func:`rotation_table`, or of each sequence, [B, S, head_dim]; None without rotary positions.
        segments: integers [B, S]; a query sees only keys of its own segment. None: all before it.
        """
        # The number of heads is left open: a tensor-parallel rank holds a share of them.
        q = self.q_norm(self.q(x).unflatten(-1, (-1, self.head_dim)))  # [B, S, heads, head_dim]
        k = self.k_norm(self.k(x).unflatten(-1, (-1, self.head_dim)))  # [B, S, kv_heads, head_dim]
        v = self.v(x).unflatten(-1, (-1, self.head_dim))
        if rotation is not None:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        return self.o(_causal_attention(q, k, v, segments).flatten(2))


def _causal_attention(q: Tensor, k: Tensor, v: Tensor, segments: Tensor | None) -> Tensor:
    """q [B, S, heads, head_dim] against k and v [B, S, kv_heads, head_dim] to the shape of q."""
    if q.dtype == torch.bfloat16 and (cpu.applies(q) or cpu.compiles(q)):
        return cpu.causal_attention(q, k, v, segments)
    grouped = q.size(2) != k.size(2)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    if segments is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped).transpose(1, 2)
    mask = (segments[:, None, :, None] == segments[:, None, None, :]).tril()  # [B, 1, S, S]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped).transpose(1, 2)
