"""Operations that PyTorch has slow or in pieces on a CPU; each is equal to the plain formula it stands for.

The layers use them when :func:`applies`, and the plain PyTorch operation else: a GPU and a compiler fuse
better than this, and DTensor knows how to split only the plain ones.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor

_QUERY_BLOCK = 128
"""Queries that are scored together: smaller skips more of the future, larger makes better products."""


def applies(x: Tensor) -> bool:
    """Whether `x` lives on a CPU, undivided, outside of a compiler, and has values."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not isinstance(x, (DTensor, FakeTensor))


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T without gradient: x [T, K], weight [N, K] to [T, N], on any device; either may be a transposed view.

    In fp32 PyTorch asks MKL, which leaves half the vector width of a CPU of another maker unused. oneDNN,
    which it asks in bf16, does not: on a Zen 5 core 226 GFLOP/s against 98.
    """
    if x.dtype == torch.float32 and applies(x) and _has_onednn_linear():
        return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return x @ weight.T


def _has_onednn_linear() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x.reshape(-1, x.size(-1)), weight).view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        flat = grad.reshape(-1, grad.size(-1))
        x_grad = product(flat, weight.T).view_as(x) if ctx.needs_input_grad[0] else None
        weight_grad = product(flat.T, x.reshape(-1, x.size(-1)).T) if ctx.needs_input_grad[1] else None
        return x_grad, weight_grad


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """F.linear; x [..., K], weight [N, K], bias [N]."""
    if x.dtype != torch.float32:
        return F.linear(x, weight, bias)
    out = _Linear.apply(x, weight)
    return out if bias is None else out + bias


def compiles(x: Tensor) -> bool:
    """Whether a compiler is at work on `x`, undivided and on a CPU.

    It fuses what is between the products and the attention, and would call what PyTorch calls for these.
    """
    return torch.compiler.is_compiling() and x.device.type == "cpu" and not isinstance(x, DTensor)


@torch.library.custom_op("argosy::product", mutates_args=())
def _compiled_product(x: Tensor, weight: Tensor) -> Tensor:
    """:func:`product` as one operation that a compiler does not look into, with its gradient."""
    return product(x, weight)


@_compiled_product.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(len(x), len(weight))


def _save_for_gradients(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    return _compiled_product(grad, weight.T), _compiled_product(grad.T, x.T)


_compiled_product.register_autograd(_gradients, setup_context=_save_for_gradients)


def compiled_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """:func:`linear` in a graph that is compiled."""
    if x.dtype != torch.float32:
        return F.linear(x, weight, bias)
    out = _compiled_product(x.reshape(-1, x.size(-1)), weight).view(*x.shape[:-1], len(weight))
    return out if bias is None else out + bias


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = norm.square_().div_(x.size(-1)).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).mul_(weight.to(wide.dtype)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        normed = x * scale  # wide, as scale is
        wide_weight = weight.to(scale.dtype)
        by_element = grad * normed
        weight_grad = by_element.flatten(0, -2).sum(0).to(weight.dtype)
        along = (by_element @ wide_weight).div_(x.size(-1)).unsqueeze_(-1)
        x_grad = (grad * wide_weight).addcmul_(normed, along, value=-1).mul_(scale)
        return x_grad.to(x.dtype), weight_grad, None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """F.rms_norm over the last dim, whose backward PyTorch composes of a dozen passes over memory."""
    return _RMSNorm.apply(x, weight, eps)


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        # Repeated over the heads, the tables' rows are as long as those of x: the inner loop is long too.
        cos, sin = (table.unsqueeze(-2).expand(*table.shape[:-1], x.size(2), -1).contiguous() for table in (cos, sin))
        ctx.save_for_backward(cos, sin)
        return (x * cos).addcmul_(swap_halves(x), sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return (grad * cos).addcmul_(swap_halves(grad), sin, value=-1), None, None


def swap_halves(x: Tensor) -> Tensor:
    """(first, second) to (second, first) in the last dim."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((second, first), dim=-1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x · cos + swap_halves(x) · sin; x [B, S, heads, head_dim], cos and sin [S, head_dim] or [B, S, head_dim]."""
    return _Rotate.apply(x, cos, sin)


def _attend(q: Tensor, k: Tensor, v: Tensor, segments: Tensor | None) -> Tensor:
    """Softmax attention by blocks of queries, each against the keys up to its own end.

    Heads of one key/value group are extra rows of the same product: with G = heads / kv_heads,
    q and o are [B · kv_heads, S · G, head_dim], k and v are [B · kv_heads, S, head_dim].
    """
    out = torch.empty_like(q)
    for rows, end, mask in _blocks(q, k, segments):
        out[:, rows] = _probabilities(q[:, rows], k[:, :end], mask) @ v[:, :end]
    return out


def _attend_gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, segments: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)  # many blocks add to the same key
    q_grad, k_grad, v_grad = torch.empty_like(q), torch.zeros_like(k, dtype=wide), torch.zeros_like(v, dtype=wide)
    for rows, end, mask in _blocks(q, k, segments):
        p = _probabilities(q[:, rows], k[:, :end], mask)
        v_grad[:, :end] += p.mT @ grad[:, rows]
        p_grad = grad[:, rows] @ v[:, :end].mT
        score_grad = torch._softmax_backward_data(p_grad, p, -1, p.dtype).mul_(q.size(-1) ** -0.5)
        q_grad[:, rows] = score_grad @ k[:, :end]
        k_grad[:, :end] += score_grad.mT @ q[:, rows]
    return q_grad, k_grad.to(k.dtype), v_grad.to(v.dtype)


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, segments: Tensor | None) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.segments = segments
        return _attend(q, k, v, segments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v = ctx.saved_tensors
        return *_attend_gradients(grad, q, k, v, ctx.segments), None


# The same as operations that a compiler does not look into.
_compiled_attend = torch.library.custom_op("argosy::causal_attention", _attend, mutates_args=())
_compiled_attend_gradients = torch.library.custom_op(
    "argosy::causal_attention_gradients", _attend_gradients, mutates_args=()
)


@_compiled_attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, segments: Tensor | None) -> Tensor:
    return torch.empty_like(q)


@_compiled_attend_gradients.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, segments: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _save_for_attention(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    q, k, v, ctx.segments = inputs
    ctx.save_for_backward(q, k, v)


def _compiled_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    q, k, v = ctx.saved_tensors
    return *_compiled_attend_gradients(grad, q, k, v, ctx.segments), None


_compiled_attend.register_autograd(_compiled_gradients, setup_context=_save_for_attention)


def _probabilities(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    scores = torch.baddbmm(mask.expand(len(q), -1, -1), q, k.mT, alpha=q.size(-1) ** -0.5)
    return torch.softmax(scores, dim=-1)


def _blocks(q: Tensor, k: Tensor, segments: Tensor | None) -> list[tuple[slice, int, Tensor]]:
    """Row range of q, number of keys, and additive mask of each block, [rows, keys] or [B · kv_heads, rows, keys]."""
    length = k.size(1)
    group = q.size(1) // length
    blocks = []
    for start in range(0, length, _QUERY_BLOCK):
        end = min(start + _QUERY_BLOCK, length)
        future = torch.full((end - start, end), -math.inf, dtype=q.dtype, device=q.device).triu_(start + 1)
        if segments is not None:  # [B, S]
            elsewhere = segments[:, start:end, None] != segments[:, None, :end]
            future = future.masked_fill(elsewhere, -math.inf).repeat_interleave(len(k) // len(segments), dim=0)
        blocks.append((slice(start * group, end * group), end, future.repeat_interleave(group, dim=-2)))
    return blocks


def causal_attention(q: Tensor, k: Tensor, v: Tensor, segments: Tensor | None = None) -> Tensor:
    """Causal scaled dot-product attention; q [B, S, heads, head_dim], k and v [B, S, kv_heads, head_dim].

    With `segments` [B, S] a query sees only keys of its own segment.

    Unlike the CPU kernel of PyTorch 2.13 it computes no block that lies in the future, and in bf16 it multiplies
    with the bf16 instructions. Scores are rounded to the dtype of q, their softmax is computed in fp32.
    """
    batch, length, heads, head_dim = q.shape
    kv_heads = k.size(2)
    group = heads // kv_heads
    q = q.view(batch, length, kv_heads, group, head_dim).transpose(1, 2).reshape(batch * kv_heads, -1, head_dim)
    k, v = (t.transpose(1, 2).reshape(batch * kv_heads, length, head_dim) for t in (k, v))
    attend = _compiled_attend if torch.compiler.is_compiling() else _CausalAttention.apply
    out = attend(q, k, v, segments).view(batch, kv_heads, length, group, head_dim)
    return out.transpose(1, 2).reshape(batch, length, heads, head_dim)
