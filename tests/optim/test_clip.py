import math

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from argosy.errors import UsageError
from argosy.optim.clip import global_norm, scale_to_norm_
from ranks import run_ranks

ORDERS = [1.0, 2.0, 3.0, math.inf]
SHAPES = [(5, 4), (7,), (3, 2, 2), (2, 6), (1,)]


def whole_gradients(dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]


def parameters_with(gradients):
    parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return parameters


def norm_of(gradients, p):
    return torch.linalg.vector_norm(torch.cat([g.flatten().double() for g in gradients]), p)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_of_plain_gradients(p, dtype):
    gradients = whole_gradients(dtype)
    norm = global_norm(parameters_with(gradients), p)
    assert norm.dtype == torch.float32
    torch.testing.assert_close(norm.double(), norm_of(gradients, p), rtol=1e-6, atol=0)


def mixed_norms(orders, poison):
    """Norms over gradients on three meshes: two dims of one, a part of it, and none."""
    mesh = torch.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    split = [
        (mesh, [Shard(0), Shard(1)]),
        (mesh["tp"], [Shard(0)]),  # uneven: 4 and 3
        (mesh, [Replicate(), Shard(0)]),
        (mesh["dp"], [Replicate()]),
        (mesh, [Shard(0), Replicate()]),  # one rank's shard is empty
    ]
    gradients = whole_gradients()
    if poison is not None:
        gradients[0][4, 3] = poison  # on the last rank only
    gradients.append(torch.full((2,), 0.5))
    parts = [distribute_tensor(g, *where) for g, where in zip(gradients, split, strict=False)]
    parameters = parameters_with([*parts, gradients[-1]])
    calls = []

    def counted(tensor, op, group):
        calls.append(group.size())
        torch.distributed.all_reduce(tensor, op=op, group=group)

    norms = [global_norm(parameters, p, all_reduce=counted).item() for p in orders]
    scale_to_norm_(parameters, torch.tensor(norms[1]), 0.25)
    scaled = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in parameters]
    return norms, scaled, len(calls) / len(orders)


@pytest.mark.dist
def test_norm_and_clipping_over_a_mix_of_meshes():
    gradients = [*whole_gradients(), torch.full((2,), 0.5)]
    expected = [norm_of(gradients, p) for p in ORDERS]
    for norms, scaled, calls in run_ranks(4, mixed_norms, ORDERS, None):
        torch.testing.assert_close(torch.tensor(norms).double(), torch.stack(expected), rtol=1e-6, atol=0)
        for ours, g in zip(scaled, gradients, strict=True):
            torch.testing.assert_close(ours, (g.double() * 0.25 / expected[1]).float())
        assert calls == 2, "one reduction for each axis, not for each gradient"


@pytest.mark.dist
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_every_rank_sees_that_one_rank_is_not_finite(poison):
    for norms, _, _ in run_ranks(4, mixed_norms, ORDERS, poison):
        assert not any(math.isfinite(norm) for norm in norms)


def test_clipping_leaves_small_gradients_and_a_limit_of_0():
    gradients = whole_gradients()
    for limit in (1e3, 0.0):
        parameters = parameters_with([g.clone() for g in gradients])
        scale_to_norm_(parameters, global_norm(parameters), limit)
        assert all(torch.equal(p.grad, g) for p, g in zip(parameters, gradients, strict=True))


def test_zero_gradients_stay_zero():
    parameters = parameters_with([torch.zeros(3)])
    scale_to_norm_(parameters, global_norm(parameters), 1.0)
    assert not parameters[0].grad.any()


def test_parameters_without_gradient_count_nothing():
    assert global_norm([nn.Parameter(torch.ones(3))]) == 0


@pytest.mark.parametrize("p", [0.0, -1.0, math.nan])
def test_orders_that_are_no_norm_are_refused(p):
    with pytest.raises(UsageError, match="order"):
        global_norm([], p)
