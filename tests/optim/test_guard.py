import copy
import math

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from argosy.optim.build import build_optimizer, decay_groups, set_learning_rate
from argosy.optim.clip import global_norm
from argosy.optim.guard import apply_update
from argosy.recipe.schema import OptimizerTable
from ranks import run_ranks

TABLE = OptimizerTable(learning_rate=1e-2, weight_decay=0.3, clip_norm=1.0)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3, bias=False))


def set_gradients(model, seed, factor=1.0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator) * factor


def update(model, optimizer, max_norm=1.0):
    parameters = list(model.parameters())
    return apply_update(optimizer, parameters, global_norm(parameters), max_norm)


def state_of(model, optimizer):
    optimizer_state = optimizer.state_dict()
    for group in optimizer_state["param_groups"]:
        group.pop("rule", None)  # a name, which assert_close does not compare
    return copy.deepcopy((model.state_dict(), optimizer_state))


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("fused", [None, False])
def test_adamw_follows_its_formula(fused):
    """Loshchilov & Hutter 2019, algorithm 2, in float64, with clipping before it."""
    model = make_model()
    optimizer = build_optimizer(model.named_parameters(), TABLE, fused)
    w = [p.detach().double() for p in model.parameters()]
    m, v = [[torch.zeros_like(x) for x in w] for _ in range(2)]
    for step in range(1, 6):
        rate = 1e-2 / step
        set_learning_rate(optimizer, rate)
        set_gradients(model, step)
        gradients = [p.grad.double() for p in model.parameters()]
        norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients]))
        done = update(model, optimizer)
        assert done.applied
        assert math.isclose(done.norm, norm, rel_tol=1e-6)
        assert all(p.grad is None for p in model.parameters())
        for i, g in enumerate(gradients):
            g = g * min(1, 1 / norm)
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.95 * v[i] + 0.05 * g * g
            decay = 0.3 if g.ndim == 2 else 0.0
            direction = (m[i] / (1 - 0.9**step)) / ((v[i] / (1 - 0.95**step)).sqrt() + 1e-8)
            w[i] = w[i] - rate * decay * w[i] - rate * direction
    for parameter, expected in zip(model.parameters(), w, strict=True):
        torch.testing.assert_close(parameter.double(), expected, rtol=1e-5, atol=1e-6)


def test_sgd_is_the_plain_rule_with_decay_of_matrices():
    model = make_model()
    optimizer = build_optimizer(model.named_parameters(), TABLE.model_copy(update={"kind": "sgd"}))
    before = [p.detach().clone() for p in model.parameters()]
    set_gradients(model, 1)
    gradients = [p.grad.clone() for p in model.parameters()]
    update(model, optimizer, max_norm=0)
    for parameter, w, g in zip(model.parameters(), before, gradients, strict=True):
        torch.testing.assert_close(parameter.detach(), w - 1e-2 * (g + (0.3 if w.ndim == 2 else 0) * w))


def test_matrices_decay_and_vectors_do_not():
    model = make_model()
    matrices, vectors = decay_groups(model.parameters(), 0.3, "adamw")
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.3, 0.0)
    assert [p.ndim for p in matrices["params"]] == [2, 2, 2]
    assert [p.ndim for p in vectors["params"]] == [1, 1, 1]
    assert len(decay_groups(nn.Linear(2, 2, bias=False).parameters(), 0.3, "adamw")) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_non_finite_gradient_leaves_no_trace(bad, kind):
    """The run with a poisoned step between equals the one that never had it, to the bit."""
    runs = []
    for steps in ([1, "bad", 2, "bad", "bad", 3], [1, 2, 3]):
        model = make_model()
        optimizer = build_optimizer(model.named_parameters(), TABLE.model_copy(update={"kind": kind}))
        for step in steps:
            set_gradients(model, 0 if step == "bad" else step)
            if step == "bad":
                before = state_of(model, optimizer)
                next(model.parameters()).grad[3, 2] = bad
            done = update(model, optimizer)
            assert done.applied == (step != "bad")
            assert all(p.grad is None for p in model.parameters())
            if step == "bad":
                assert not math.isfinite(done.norm)
                assert_same(state_of(model, optimizer), before)
        runs.append(state_of(model, optimizer))
    assert_same(*runs)


def sharded_updates(kind):
    """Three clipped updates and a poisoned one between them, of a model sharded over all ranks."""
    model = make_model()
    mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    fully_shard(model, mesh=mesh)
    optimizer = build_optimizer(model.named_parameters(), TABLE.model_copy(update={"kind": kind}))
    applied = []
    for step in (1, 2, "bad", 3):
        whole = make_model()
        set_gradients(whole, 9 if step == "bad" else step)
        if step == "bad":
            whole[3].weight.grad[2, 4] = math.nan  # on the last rank
        for sharded, source in zip(model.parameters(), whole.parameters(), strict=True):
            sharded.grad = torch.distributed.tensor.distribute_tensor(source.grad, mesh, sharded.placements)
        applied.append(update(model, optimizer).applied)
    return applied, [p.full_tensor().detach() for p in model.parameters()]


@pytest.mark.dist
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_sharded_updates_equal_those_of_one_process(kind):
    model = make_model()
    optimizer = build_optimizer(model.named_parameters(), TABLE.model_copy(update={"kind": kind}))
    for step in (1, 2, 3):
        set_gradients(model, step)
        update(model, optimizer)
    for applied, weights in run_ranks(2, sharded_updates, kind):
        assert applied == [True, True, False, True]
        for ours, expected in zip(weights, model.parameters(), strict=True):
            torch.testing.assert_close(ours, expected.detach())
