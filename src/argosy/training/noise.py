"""Norms of the gradients of single replicas, from which the ledger estimates the gradient noise scale."""

from collections.abc import Iterable

import torch
from torch import nn

from argosy.journal.recorder import Recording
from argosy.journal.schema import sampled
from argosy.training.observers import Observer


class NoiseWatch(Observer):
    """Writes a `norms` record on sampled steps. For whole replicas: a sharded gradient is summed when it arrives."""

    def __init__(self, recorder: Recording, *, seed: int, every: int):
        self._recorder = recorder
        self._seed, self._every = seed, every

    def on_local_grads(self, step: int, parameters: Iterable[nn.Parameter]) -> None:
        if not sampled(step, self._seed, self._every):
            return
        with self._recorder.phase("telemetry"):
            gradients = [p.grad for p in parameters if p.grad is not None]
            if not gradients:  # updated within backward, one weight after the other
                return
            norms = torch._foreach_norm(gradients, dtype=torch.float32)
            self._recorder.event("norms", s=step, sq=float(torch.stack(norms).square().sum()))
