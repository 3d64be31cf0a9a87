"""Tied embeddings in a pipeline: first and last stage have a copy each, which stay equal to the bit.

Copies on two ranks both get the sum of both gradients and take the same update. Copies on one rank (the two ends of a
V-shaped schedule) are one parameter to the outside: the first stage's, whose values the other takes over.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from argosy.models.decoder import Decoder
from argosy.models.split import local
from argosy.parallel.pipeline import Pipeline


@dataclass(frozen=True)
class TiedEmbedding:
    """This rank's copies."""

    first: nn.Parameter | None
    second: nn.Parameter | None
    pipeline: Pipeline

    @classmethod
    def of(cls, models: Mapping[int, Decoder], pipeline: Pipeline | None) -> "TiedEmbedding | None":
        """None when there is just one copy, or none of them on this rank."""
        if pipeline is None or not next(iter(models.values())).config.tied_embeddings:
            return None
        first, second = (models.get(number) for number in (0, pipeline.last_stage))
        if first is None and second is None:
            return None
        return cls(_weight(first), _weight(second), pipeline)

    def is_second_on_this_rank(self, parameter: nn.Parameter) -> bool:
        return self.first is not None and parameter is self.second

    @property
    def lone(self) -> nn.Parameter | None:
        """The copy on this rank whose fellow is on another one."""
        return self.first if self.second is None else self.second if self.first is None else None

    @property
    def counted_by_peer(self) -> nn.Parameter | None:
        """The copy that the rank of the first stage counts."""
        return self.second if self.first is None else None

    def add_gradients_on_this_rank(self) -> None:
        if self.first is not None and self.second is not None:
            assert self.first.grad is not None
            assert self.second.grad is not None
            self.first.grad += self.second.grad
            self.second.grad = None

    def add_of_peer(self, gradient: Tensor) -> None:
        """Add the gradient of the lone copy's fellow: both ranks add the same two, and x + y = y + x to the bit."""
        peer = self.pipeline.rank_of(self.pipeline.last_stage if self.second is None else 0)
        gradient += self.pipeline.links.exchange(gradient.contiguous(), peer, tag=0)

    @torch.no_grad()
    def copy_values(self) -> None:
        """Let the second copy on this rank have the values of the first."""
        if self.first is not None and self.second is not None:
            local(self.second).copy_(local(self.first))


def _weight(model: Decoder | None) -> nn.Parameter | None:
    if model is None:
        return None
    assert model.embedding is not None
    weight: Tensor = model.embedding.weight
    assert isinstance(weight, nn.Parameter)
    return weight
