"""The rank whose own gradient is broken is known, although the sum over ranks breaks it for all."""

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from argosy.resilience.local_gradients import LocalGradients


def norms(sharded: bool, guilty: int, micro_batches: int) -> list[tuple[float, bool]]:
    """Three steps, the second with a NaN in one rank's data: (own norm, whether the summed gradient is finite)."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    if sharded:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (*model, model):
            fully_shard(layer, mesh=mesh)
    local = LocalGradients([model])
    found = []
    for step in range(3):
        for _ in range(micro_batches):
            data = torch.full((5, 4), 1.0 + dist.get_rank())
            if step == 1 and dist.get_rank() == guilty:
                data[2, 1] = math.nan
            model(data).square().mean().backward()
        own = local.norm(model.parameters())
        gradients = [p.grad.full_tensor() if sharded else p.grad for p in model.parameters()]  # type: ignore[union-attr]
        if not sharded:
            for gradient in gradients:
                dist.all_reduce(gradient)
        found.append((own, all(bool(g.isfinite().all()) for g in gradients)))  # type: ignore[union-attr]
        model.zero_grad()
    return found


@pytest.mark.dist
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(("guilty", "micro_batches"), [(0, 1), (1, 2)])
def test_only_the_guilty_rank_is_not_finite(run_ranks: Any, sharded: bool, guilty: int, micro_batches: int) -> None:
    found = run_ranks(2, norms, sharded, guilty, micro_batches)
    for rank, steps in enumerate(found):
        assert [math.isfinite(own) for own, _ in steps] == [True, rank != guilty, True]
        assert [finite for _, finite in steps] == [True, False, True], "the sum has it on all ranks"
        assert all(own > 0 for own, _ in (steps[0], steps[2]))
        assert steps[0][0] == pytest.approx(steps[2][0]), "a step's norm is its own"
