"""ZeRO stage 1: weights and gradients whole on each rank, optimizer state divided (Rajbhandari et al. 2020, section 5).

torch's ``ZeroRedundancyOptimizer`` deals out whole parameters, so its checkpoints fit one number of ranks only. Here
each rank updates its rows of every weight, as a DTensor over the very memory of the weight: optimizers, gradient norm
and checkpoints see what they see with FSDP2.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from argosy.models.collectives import all_gather, reduce_scatter
from argosy.models.split import divided_like, local


class OptimizerShards:
    """Rows of `parameters` that this rank updates.

    `mesh` has the axis fsdp, and tp where parameters are divided over it; `replicas` is the group of whole copies of
    all this, if there are any.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        mesh: dist.DeviceMesh,
        replicas: dist.ProcessGroup | None,
        dtype: torch.dtype,
    ):
        self._parameters = list(parameters)
        self._group = mesh.get_group("fsdp")
        self._rank, self._ranks = mesh.get_local_rank("fsdp"), mesh.size(0)
        self._replicas = replicas
        self._dtype = dtype
        self.of = {parameter: self._shard(parameter, mesh) for parameter in self._parameters}

    def clear(self) -> None:
        """Forget gradients; those of whole weights are the model's to clear."""
        for shard in self.of.values():
            shard.grad = None

    @torch.no_grad()
    def sum_over_ranks(self) -> None:
        """Give each shard the sum of its gradient over ranks; the whole gradients are let go."""
        rows = [self._by_rank(_whole_gradient(parameter)) for parameter in self._parameters]
        summed = reduce_scatter(torch.cat(rows, dim=1).to(self._dtype), self._group)
        if self._replicas is not None:
            dist.all_reduce(summed, group=self._replicas)
        for (parameter, shard), part in zip(self.of.items(), summed.split([r.size(1) for r in rows]), strict=True):
            mine = local(shard)
            shard.grad = divided_like(shard, part[: mine.numel()].view_as(mine).to(mine.dtype))
            parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Let all ranks have the rows that each of them updated."""
        padded = [self._by_rank(local(parameter))[self._rank] for parameter in self._parameters]
        gathered = all_gather(torch.cat(padded), self._group)
        for parameter, part in zip(self._parameters, gathered.split([p.numel() for p in padded], dim=1), strict=True):
            whole = local(parameter)
            whole.copy_(part.flatten()[: whole.numel()].view_as(whole))

    def _by_rank(self, whole: Tensor) -> Tensor:
        """Rows of `whole` in equal shares, the last ones filled with zeros: [ranks, elements of a share]."""
        chunk = -(-whole.size(0) // self._ranks)
        rows = whole.new_zeros(self._ranks * chunk, *whole.shape[1:])
        rows[: whole.size(0)] = whole
        return rows.view(self._ranks, -1)

    def _shard(self, parameter: nn.Parameter, mesh: dist.DeviceMesh) -> nn.Parameter:
        whole = local(parameter.detach())
        chunk = -(-whole.size(0) // self._ranks)
        mine = whole[self._rank * chunk : (self._rank + 1) * chunk]  # a view: what is updated is the weight itself
        placements: list[Placement] = [Shard(0)]
        if isinstance(parameter, DTensor):
            (within,) = parameter.placements
            if within == Shard(0):
                placements = [_StridedShard(0, split_factor=mesh.size(1)), within]
            else:
                placements = [Shard(0), within]
        elif mesh.ndim > 1:
            placements = [Shard(0), Replicate()]
        shard = DTensor.from_local(
            mine, mesh, placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
        )
        return nn.Parameter(shard)


def _whole_gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        return torch.zeros_like(local(parameter))
    return local(parameter.grad)
