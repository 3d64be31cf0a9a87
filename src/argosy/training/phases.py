"""Declared phases of the loop, told to the journal and to the observers at once."""

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from torch import nn

from argosy.data.batch import Batch
from argosy.journal.recorder import Recording
from argosy.training.observers import Observer, Ready


class Phases:
    """``with phases("forward", step):`` books the time and calls ``on_phase``."""

    nothing: AbstractContextManager[Any] = contextlib.nullcontext()

    def __init__(self, recorder: Recording, observers: Sequence[Observer] = ()):
        self._recorder = recorder
        self._observers = tuple(observers)

    def __call__(self, name: str, step: int) -> AbstractContextManager[Any]:
        """A phase within a step: its self time goes to the step's record."""
        for observer in self._observers:
            observer.on_phase(name, step)
        return self._recorder.phase(name)

    def window(self, name: str, step: int) -> AbstractContextManager[Any]:
        """A phase between steps, with a record of its own."""
        for observer in self._observers:
            observer.on_phase(name, step)
        return self._recorder.span(name)

    def ready(self, ready: Ready) -> None:
        for observer in self._observers:
            observer.on_ready(ready)

    def batch(self, step: int, batches: Sequence[Batch]) -> None:
        for observer in self._observers:
            observer.on_batch(step, batches)

    def local_gradients(self, step: int, parameters: Iterable[nn.Parameter]) -> None:
        parameters = list(parameters)  # each observer is to see them, not only the first
        for observer in self._observers:
            observer.on_local_grads(step, parameters)

    def update(self, step: int, applied: bool) -> None:
        for observer in self._observers:
            observer.on_update(step, applied)

    def step_end(self, step: int, loss: float) -> None:
        for observer in self._observers:
            observer.on_step_end(step, loss)

    def saved(self, step: int, folder: Path) -> None:
        for observer in self._observers:
            observer.on_save(step, folder)
