"""Each hand-written CPU operation against the plain formula it stands for."""

import pytest
import torch
import torch.nn.functional as F

from argosy.models import cpu
from argosy.models.rope import rotation_table, swap_halves
from argosy.recipe.model_table import ModelTable


def values(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def same_gradients(ours, theirs, inputs, **tolerance):
    """Values and gradients of two functions for one random direction."""
    a, b = ours(*inputs), theirs(*inputs)
    torch.testing.assert_close(a, b, **tolerance)
    direction = values(*a.shape, dtype=a.dtype, seed=9).detach()
    torch.testing.assert_close(
        torch.autograd.grad(a, inputs, direction), torch.autograd.grad(b, inputs, direction), **tolerance
    )


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 2, 8)])
def test_rms_norm(shape):
    x, weight = values(*shape), values(8, seed=1)
    assert torch.autograd.gradcheck(lambda x, w: cpu.rms_norm(x, w, 1e-3), (x, weight))
    same_gradients(lambda x, w: cpu.rms_norm(x, w, 1e-3), lambda x, w: F.rms_norm(x, (8,), w, 1e-3), (x, weight))


def test_rms_norm_keeps_bf16_statistics_in_fp32():
    x, weight = values(64, 512, dtype=torch.bfloat16), torch.ones(512, dtype=torch.bfloat16)
    truth = F.rms_norm(x.double(), (512,), weight.double(), 1e-5)
    error = (cpu.rms_norm(x, weight, 1e-5).double() - truth).abs() / truth.abs()
    assert error.max() <= 2**-8, "one rounding to bf16"


@pytest.mark.parametrize("bias", [True, False])
def test_linear_of_a_compiled_graph(bias):
    x, weight = values(2, 7, 12, dtype=torch.float32), values(5, 12, dtype=torch.float32, seed=1)
    b = values(5, dtype=torch.float32, seed=2) if bias else None
    inputs = (x, weight, b) if bias else (x, weight)
    same_gradients(lambda x, w, b=None: cpu.compiled_linear(x, w, b), lambda x, w, b=None: F.linear(x, w, b), inputs)
    # Shapes and gradients that a compiler is told are those that come.
    torch.library.opcheck(torch.ops.argosy.product, (x.detach().flatten(0, 1).requires_grad_(), weight))


@pytest.mark.parametrize("divided", [False, True])
def test_attention_of_a_compiled_graph(divided):
    q, k, v = values(2, 16, 4, 8), values(2, 16, 2, 8, seed=1), values(2, 16, 2, 8, seed=2)
    segments = torch.arange(16).expand(2, -1) // 5 if divided else None
    compiled = torch.compile(cpu.causal_attention, backend="aot_eager", fullgraph=True)
    same_gradients(
        lambda q, k, v: compiled(q, k, v, segments), lambda q, k, v: cpu.causal_attention(q, k, v, segments), (q, k, v)
    )
    flat = [t.detach().transpose(1, 2).flatten(0, 1).contiguous() for t in (k, k, v)]
    torch.library.opcheck(torch.ops.argosy.causal_attention, (*(t.requires_grad_() for t in flat), None))


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias):
    x, weight = values(2, 7, 12, dtype=torch.float32), values(5, 12, dtype=torch.float32, seed=1)
    b = values(5, dtype=torch.float32, seed=2) if bias else None
    inputs = (x, weight, b) if bias else (x, weight)
    same_gradients(
        lambda x, w, b=None: cpu.linear(x, w, b), lambda x, w, b=None: F.linear(x, w, b), inputs, rtol=1e-5, atol=1e-5
    )


def test_rotation():
    cos, sin = rotation_table(ModelTable(hidden_size=16, heads=2), 9, torch.float64, torch.device("cpu"))
    x = values(2, 9, 3, 8)
    assert torch.autograd.gradcheck(lambda x: cpu.rotate(x, cos, sin), (x,))
    same_gradients(lambda x: cpu.rotate(x, cos, sin), lambda x: x * cos[:, None] + swap_halves(x) * sin[:, None], (x,))


def plain_attention(q, k, v):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize("length", [1, 4, 11])
def test_causal_attention(monkeypatch, heads, kv_heads, length):
    monkeypatch.setattr(cpu, "_QUERY_BLOCK", 4)  # several blocks, the last one shorter
    inputs = values(2, length, heads, 6), values(2, length, kv_heads, 6, seed=1), values(2, length, kv_heads, 6, seed=2)
    same_gradients(cpu.causal_attention, plain_attention, inputs)


def test_causal_attention_in_bf16_is_near_the_truth():
    inputs = [values(2, 300, 4, 32, dtype=torch.bfloat16, seed=s) for s in range(3)]
    truth = [t.detach().double().requires_grad_() for t in inputs]
    ours, theirs = cpu.causal_attention(*inputs), plain_attention(*truth)
    direction = values(*ours.shape, seed=9).detach()
    gradients = torch.autograd.grad(ours, inputs, direction.bfloat16())
    expected = torch.autograd.grad(theirs, truth, direction)
    for a, b in zip((ours, *gradients), (theirs, *expected), strict=True):
        assert (a.double() - b).norm() <= 0.01 * b.norm()
