"""Lets the collective guard look before each update."""

from argosy.parallel.guard import CollectiveGuard
from argosy.training.observers import Observer


class Guarding(Observer):
    """Compares, before weights change, that all ranks have made all calls of the step."""

    def __init__(self, guard: CollectiveGuard):
        self._guard = guard

    def on_phase(self, name: str, step: int) -> None:
        if name == "optimizer":
            self._guard.end_of_step()
