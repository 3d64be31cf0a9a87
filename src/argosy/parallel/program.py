"""The distributed program of a layout: one rank's share of a model, and how its gradients come about.

A rank has one model, or with a pipeline several stages; each is divided over the tensor-parallel ranks
(:mod:`argosy.parallel.tensor`), then over the fsdp ranks (:mod:`argosy.parallel.shard`), or else is a whole replica
whose gradients are summed in one flat all-reduce (:mod:`argosy.parallel.replicate`), or one of which only the
optimizer state is divided (:mod:`argosy.parallel.zero`).

After :meth:`Program.forward_backward` and :meth:`Program.sum_gradients`, gradients are the *sum* over all ranks and
micro-batches. The loss is scaled by the global number of loss tokens, so uneven padding on ranks or micro-batches
gives the gradient of one big batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from argosy.data.batch import Batch
from argosy.models.decoder import Decoder
from argosy.models.loss import LossSums
from argosy.models.split import local
from argosy.optim.clip import global_norm
from argosy.parallel.pipeline import LastPart, Pipeline, Timed
from argosy.parallel.replicate import FlatGradients
from argosy.parallel.tied import TiedEmbedding
from argosy.parallel.update_in_backward import UpdateInBackward
from argosy.parallel.zero import OptimizerShards


@dataclass(frozen=True)
class Axes:
    """This rank's process groups outside of FSDP; None where an axis has one rank."""

    dp: dist.ProcessGroup | None = None
    """Whole replicas; None too when FSDP2 sums over them (HSDP)."""
    zero: dist.DeviceMesh | None = None
    """Where optimizer state alone is divided: the mesh of fsdp, and of tp if there is any."""
    tp: dist.ProcessGroup | None = None
    pp: dist.ProcessGroup | None = None


class Program:
    """One rank's share of a model, with its gradients."""

    def __init__(
        self,
        models: Mapping[int, Decoder],
        axes: Axes,
        pipeline: Pipeline | None,
        reduce_dtype: torch.dtype,
        device: torch.device,
    ):
        self.models = dict(models)
        """By number of their stage; 0 without a pipeline."""
        self.device = device
        self._axes = axes
        self._pipeline = pipeline
        self._tied = TiedEmbedding.of(self.models, pipeline)
        self._in_backward: UpdateInBackward | None = None
        self._shards: OptimizerShards | None = None
        self._replicas: FlatGradients | None = None
        if axes.zero is not None:
            self._shards = OptimizerShards(list(self.parameters()), axes.zero, axes.dp, reduce_dtype)
        elif axes.dp is not None:
            self._replicas = FlatGradients(list(self.parameters()), axes.dp, reduce_dtype)

    # -- parameters ----------------------------------------------------------------------------------

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Those that this rank updates; names do not depend on the layout."""
        for model in self.models.values():
            for name, parameter in model.named_parameters():
                if not (self._tied and self._tied.is_second_on_this_rank(parameter)):
                    yield name, self._updated(parameter)

    def parameters(self) -> Iterator[nn.Parameter]:
        for _, parameter in self.named_parameters():
            yield parameter

    def _updated(self, parameter: nn.Parameter) -> nn.Parameter:
        """What the optimizer updates of a model's parameter."""
        return self._shards.of[parameter] if self._shards else parameter

    def update_in_backward(self, optimizer: Optimizer) -> None:
        """From now on update each weight within the backward pass; see :mod:`argosy.parallel.update_in_backward`."""
        self._in_backward = UpdateInBackward(self.named_parameters(), optimizer)

    @property
    def updates_in_backward(self) -> bool:
        return self._in_backward is not None

    def after_change(self) -> None:
        """To be called when values of parameters were set or updated."""
        if self._shards:
            self._shards.publish()
        if self._tied:
            self._tied.copy_values()

    # -- a training step -----------------------------------------------------------------------------

    def clear_gradients(self) -> None:
        for model in self.models.values():
            model.zero_grad(set_to_none=True)
        if self._replicas:
            self._replicas.clear()
        if self._shards:
            self._shards.clear()

    def forward_backward(self, batches: Sequence[Batch], *, divisor: int, z_loss: float, timed: Timed) -> Tensor:
        """Add the gradients of all micro-batches' losses ÷ `divisor`; FSDP2 sums them over its ranks on the way.

        Returns the sum of losses in nats, 0 on ranks whose part another rank reports too or that see no loss.
        """
        if self._pipeline is not None:
            found = self._pipeline.run(batches, divisor=divisor, z_loss=z_loss, timed=timed)
        else:
            found = self._accumulate(batches, divisor=divisor, z_loss=z_loss, timed=timed)
        return found if found is not None and self.reports else torch.zeros((), device=self.device)

    def _accumulate(self, batches: Sequence[Batch], *, divisor: int, z_loss: float, timed: Timed) -> Tensor:
        (model,) = self.models.values()
        loss_sum = torch.zeros((), device=self.device)
        for number, batch in enumerate(batches, start=1):
            with timed("forward"):
                sums = model(batch.tokens, batch.targets, z_loss=z_loss, documents=batch.documents)
                objective = sums.objective / divisor
            with timed("backward"):
                if isinstance(model, FSDPModule):
                    last = number == len(batches)
                    model.set_requires_gradient_sync(last)
                    model.set_is_last_backward(last)
                objective.backward()
            loss_sum += sums.loss_sum.detach()
        return loss_sum

    def sum_gradients(self) -> None:
        """Sum over ranks what is not yet: replicas, weights that tensor parallelism leaves whole, tied copies."""
        if self._tied:
            self._tied.add_gradients_on_this_rank()
        for replicated in (self._replicas, self._shards):
            if replicated:
                replicated.sum_over_ranks()
        if self._axes.tp is not None:
            _sum_flat([_gradient(p) for p in self.parameters() if _is_whole(p, "tp")], self._axes.tp)
        if self._tied and self._tied.lone is not None:
            self._tied.add_of_peer(_gradient(self._updated(self._tied.lone)))

    def gradient_norm(self, p: float = 2.0) -> Tensor:
        """p-norm of the global gradient, each element of it counted once; equal on all ranks."""
        if self._in_backward is not None:
            return self._in_backward.norm()
        elsewhere = self._tied.counted_by_peer if self._tied else None
        skipped = None if elsewhere is None else self._updated(elsewhere)
        counted = (q for q in self.parameters() if q is not skipped)
        return global_norm(counted, p, over=() if self._axes.pp is None else (self._axes.pp,))

    # -- without gradients ---------------------------------------------------------------------------

    @torch.no_grad()
    def loss_sum(self, batch: Batch) -> float:
        """Sum of losses in nats of a batch, on one of the ranks that share it; 0 on the others."""
        sums = self._forward(batch, lambda model, x: model(x, batch.targets))
        return float(sums.loss_sum) if isinstance(sums, LossSums) and self.reports else 0.0

    @torch.no_grad()
    def next_logits(self, tokens: Tensor) -> Tensor:
        """fp32 logits [vocabulary] of what follows `tokens` [S], on all ranks that share the model alike."""
        length = len(tokens)
        share = next(iter(self.models.values())).sequence_share[1]
        # What stands behind the text does not change what follows it.
        padded = F.pad(tokens.to(self.device), (0, -length % share))[None]
        batch = Batch(padded, padded, torch.zeros(1, dtype=torch.int64), loss_tokens=0)
        logits = self._forward(batch, lambda model, x: model(x)[0, length - 1])
        if self._pipeline is None:
            assert isinstance(logits, Tensor)
            return logits
        if logits is None:
            (model, *_) = self.models.values()
            logits = torch.empty(model.vocab_size, device=self.device)
        assert isinstance(logits, Tensor)
        logits = logits.contiguous()
        dist.broadcast(logits, group=self._axes.pp, group_src=self._pipeline.rank_of(self._pipeline.last_stage))
        return logits

    def _forward(self, batch: Batch, last: LastPart) -> LossSums | Tensor | None:
        if self._pipeline is not None:
            return self._pipeline.forward(batch, last)
        (model,) = self.models.values()
        return last(model, batch.tokens)

    @property
    def reports(self) -> bool:
        """Whether this is the one of the ranks with the same sequences whose loss and counts count."""
        has_end = any(model.part.last for model in self.models.values())
        return has_end and (self._axes.tp is None or dist.get_rank(self._axes.tp) == 0)


def _is_whole(parameter: nn.Parameter, axis: str) -> bool:
    """Whether each rank of `axis` has all of `parameter`."""
    assert isinstance(parameter, DTensor)
    names = parameter.device_mesh.mesh_dim_names
    assert names is not None
    return parameter.placements[names.index(axis)].is_replicate()


def _gradient(parameter: nn.Parameter) -> Tensor:
    """What this rank holds of its gradient."""
    if parameter.grad is None:  # no token reached it here; on other ranks some may have
        parameter.grad = torch.zeros_like(parameter)
    return local(parameter.grad)


def _sum_flat(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Sum tensors over ranks in place, all of them in one message."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat, group=group)
    for tensor, piece in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(piece.view_as(tensor))
