"""Two ways to start the ranks of an attempt: forked from a warm server, or as programs of their own."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from argosy.launch.workers import Workers
from argosy.resilience.forkserver import ForkServer, Order

ENTRY = "argosy.launch.rank:main"
COMMAND = (sys.executable, "-m", "argosy.launch.rank")


class Starter(Protocol):
    """Starts the ranks of an attempt."""

    @property
    def warm(self) -> bool:
        """Ranks can be started at once."""
        ...

    def get_ready(self, wake: int) -> None:
        """Wait until they can, or until `wake` becomes readable."""
        ...

    def start(self, workers: Workers, orders: Mapping[int, Order]) -> None:
        """Start the ranks of `orders` as `workers`."""
        ...

    def close(self) -> None:
        """No more ranks will be started."""
        ...


class ColdStart:
    """Each rank is a program that imports everything for itself."""

    def __init__(self, command: Sequence[str] = COMMAND):
        self._command = command

    warm = True

    def get_ready(self, wake: int) -> None: ...

    def start(self, workers: Workers, orders: Mapping[int, Order]) -> None:
        for rank, order in orders.items():
            workers.start(rank, [*self._command, *order.arguments], order.env, order.log)

    def close(self) -> None: ...


class WarmStart:
    """Ranks are forks of a server; a new one is started when it has died."""

    def __init__(self, log: Path, entry: str = ENTRY) -> None:
        self._log, self._entry = log, entry
        self._server = ForkServer(entry, log)

    @property
    def warm(self) -> bool:
        return self._server.alive and self._server.warm

    def get_ready(self, wake: int) -> None:
        if not self._server.alive:
            self._server.close()
            self._server = ForkServer(self._entry, self._log)
        self._server.wait_until_warm(wake)

    def start(self, workers: Workers, orders: Mapping[int, Order]) -> None:
        workers.fork(self._server, orders)

    def close(self) -> None:
        self._server.close()
