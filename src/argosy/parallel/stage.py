"""One pipeline stage: its part of the model, and what it keeps of each micro-batch between forward and backward."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# torch splits a backward pass in two for its own zero-bubble schedules; these have no public name.
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from argosy.models.decoder import Decoder


@dataclass
class _Flight:
    entry: Tensor | None
    """Hidden states as they came in; None for tokens, which have no gradient."""
    result: Tensor
    """Hidden states, or the objective on the last stage."""
    halves: list[dict[str, Any]] = field(default_factory=list)
    """Where the second half of the backward pass goes on."""


class Stage:
    """Forward and backward of one stage on numbered micro-batches."""

    def __init__(self, number: int, model: Decoder):
        self.number = number
        self.model = model
        self._flights: dict[int, _Flight] = {}

    @property
    def in_flight(self) -> int:
        """Micro-batches whose activations are held."""
        return len(self._flights)

    def keep(self, micro: int, entry: Tensor, result: Tensor) -> None:
        """Remember a forward pass: `entry` are tokens or hidden states, `result` what gradients come back for."""
        self._flights[micro] = _Flight(entry if entry.is_floating_point() else None, result)

    def backward(self, micro: int, gradient: Tensor | None) -> Tensor | None:
        """Gradients of weights and entry; `gradient` is that of the result, None for the objective itself.

        Returns the gradient of the entry, None on the first stage.
        """
        flight = self._flights.pop(micro)
        torch.autograd.backward([flight.result], [gradient])
        return None if flight.entry is None else flight.entry.grad

    def backward_to_entry(self, micro: int, gradient: Tensor | None) -> Tensor | None:
        """The first half: only what the stage before waits for. On the first stage nothing does."""
        flight = self._flights[micro]
        if flight.entry is None:
            flight.halves = [{"gradient": gradient}]
            return None
        gradients, flight.halves = stage_backward_input(
            [flight.result], None if gradient is None else [gradient], [flight.entry], self.model.parameters()
        )
        return gradients[0]

    def backward_to_weights(self, micro: int) -> None:
        """The second half: gradients of the weights."""
        flight = self._flights.pop(micro)
        if flight.entry is None:
            torch.autograd.backward([flight.result], [flight.halves[0]["gradient"]])
        else:
            stage_backward_weight(self.model.parameters(), flight.halves)
