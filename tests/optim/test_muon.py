"""Muon against torch's own, against the singular value decomposition, and on shards."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from argosy.optim.build import build_optimizer, hidden_matrices
from argosy.optim.muon import orthogonalise
from argosy.recipe.schema import OptimizerTable

TABLE = OptimizerTable(kind="muon", learning_rate=0.01, weight_decay=0.1)


class Toy(nn.Module):
    """An embedding and one block with a wide, a tall and a norm parameter."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)

        def random(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator))

        self.embedding = nn.ParameterDict({"weight": random(11, 6)})
        self.blocks = nn.ModuleDict(
            {"0": nn.ParameterDict({"wide": random(6, 10), "tall": random(9, 6), "norm": random(6)})}
        )


def with_gradients(toy: Toy, step: int) -> Toy:
    generator = torch.Generator().manual_seed(step)
    for parameter in toy.parameters():
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = like(parameter, gradient)
    return toy


def like(parameter: Tensor, whole: Tensor) -> Tensor:
    if isinstance(parameter, torch.distributed.tensor.DTensor):
        return distribute_tensor(whole, parameter.device_mesh, parameter.placements)
    return whole


@pytest.mark.parametrize("shape", [(8, 8), (5, 40), (40, 5)])
def test_singular_vectors_stay_and_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    inside = u.T @ orthogonalise(matrix) @ vh.T
    assert inside.diagonal().min() > 0.5
    assert inside.diagonal().max() < 1.3
    assert (inside - inside.diagonal().diag()).abs().max() < 0.05  # bf16 products


def test_equals_torchs_muon_inside_the_blocks_and_adamw_outside() -> None:
    ours, theirs = Toy(), Toy()
    optimizer = build_optimizer(ours.named_parameters(), TABLE)
    matrices = hidden_matrices(theirs.named_parameters())
    assert sorted(p.shape for p in matrices) == [(6, 10), (9, 6)]
    muon = torch.optim.Muon(matrices, lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    betas = (TABLE.beta1, TABLE.beta2)
    adamw = [
        torch.optim.AdamW([theirs.embedding["weight"]], lr=0.01, betas=betas, eps=TABLE.eps, weight_decay=0.1),
        torch.optim.AdamW([theirs.blocks["0"]["norm"]], lr=0.01, betas=betas, eps=TABLE.eps, weight_decay=0.0),
    ]
    for step in range(4):
        with_gradients(ours, step), with_gradients(theirs, step)
        optimizer.step()
        for one in (muon, *adamw):
            one.step()
        for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=5e-4, msg=lambda text, name=name: f"{name}: {text}")


def steps_on_shards() -> list[Tensor]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    toy = Toy()
    for module in toy.modules():
        for name, parameter in list(getattr(module, "_parameters", {}).items()):
            module._parameters[name] = nn.Parameter(distribute_tensor(parameter.data, mesh, [Shard(0)]))
    optimizer = build_optimizer(toy.named_parameters(), TABLE)
    for step in range(3):
        with_gradients(toy, step)
        optimizer.step()
    return [parameter.full_tensor() for parameter in toy.parameters()]


@pytest.mark.dist
def test_uneven_shards_step_as_the_whole(run_ranks: Any) -> None:
    whole = Toy()
    optimizer = build_optimizer(whole.named_parameters(), TABLE)
    for step in range(3):
        with_gradients(whole, step)
        optimizer.step()
    for result in run_ranks(4, steps_on_shards):
        for mine, other in zip(result, whole.parameters(), strict=True):
            torch.testing.assert_close(mine, other.data, rtol=0, atol=1e-6)
