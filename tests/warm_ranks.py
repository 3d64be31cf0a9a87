"""What the forkserver of :mod:`ranks` imports once, so that every rank forked from it starts warm.

Importing this module loads torch with everything that the engine wing uses, and runs two FSDP2 + AdamW steps on the
*fake* process group: the first `fully_shard` imports some two hundred modules and the first optimizer step costs a
quarter of a second. One thread (an OpenMP pool does not survive a fork) and no gloo (nor do its threads).
"""

import gc

import pytest  # noqa: F401  test modules import it, and the ranks import test modules
import torch
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.checkpoint.state_dict
import torch.distributed.tensor.parallel
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore


def product_on_two_axes(mesh: DeviceMesh) -> torch.Tensor:
    """Norm of a product of matrices that are sharded on both axes of `mesh`."""
    square = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0), Shard(1)])
    norm = torch.linalg.vector_norm(square @ square)
    assert isinstance(norm, DTensor)
    return norm.full_tensor()


def _two_steps() -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "fsdp"))
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    for layer in (*model, model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.ones(2, 8)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    product_on_two_axes(mesh)
    dist.destroy_process_group()
    # DTensor's caches would hand the dead group's name to a mesh of the same shape in a rank.
    _clear_sharding_prop_cache()


torch.set_num_threads(1)
_two_steps()
gc.collect()
gc.freeze()  # what is here now is shared with the ranks; a collection there need not touch (and copy) it
