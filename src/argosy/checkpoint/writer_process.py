"""A rank's handle on its writer (:mod:`argosy.checkpoint.writer`)."""

import contextlib
import multiprocessing
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from argosy.checkpoint.orders import Desk, Order
from argosy.errors import ArgosyError


@dataclass(frozen=True)
class Answer:
    """An order was carried out, or failed."""

    error: Exception | None = None


class WriterProcess:
    """It is started when it is first needed, and again after it died."""

    def __init__(self, desk: Desk, buffers_fd: int):
        self._desk = desk
        self._buffers_fd = buffers_fd
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: Connection | None = None
        self._answers = select.poll()  # kept, since a rank looks at each step: Connection.poll makes one each time
        self._tickets = 0

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self._orders is not None:
            return
        ours, theirs = multiprocessing.Pipe()
        fds = (theirs.fileno(), self._buffers_fd)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "argosy.checkpoint.writer", *map(str, fds)], stdin=subprocess.DEVNULL, pass_fds=fds
        )
        theirs.close()
        ours.send(self._desk)
        self._answers.register(ours, select.POLLIN)
        self._orders = ours

    def order(self, order: Order) -> int:
        """Have something done, after what was ordered before; a ticket for the answer."""
        self.start()
        assert self._orders is not None
        self._tickets += 1
        with contextlib.suppress(BrokenPipeError):  # it died: the answer will say so
            self._orders.send((self._tickets, order))
        return self._tickets

    def answer(self, ticket: int, timeout_s: float | None = 0.0) -> Answer | None:
        """How the order went; None when that is not known within `timeout_s` (None: wait for it)."""
        give_up_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self._orders is not None:
            if not self._answers.poll(None if give_up_s is None else max(0.0, give_up_s - time.monotonic()) * 1000):
                return None
            try:
                number, error = self._orders.recv()
            except (EOFError, ConnectionResetError):
                break
            if number == ticket:  # others are of orders that nobody waits for
                return Answer(error)
        code = self.close()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Answer(ArgosyError(f"the writer process {how}"))

    def close(self) -> int:
        """Let it end after what it is doing, and wait for that; its exit code, 0 where there is none."""
        if self._orders is not None:
            self._answers.unregister(self._orders)
            self._orders.close()
            self._orders = None
        code = 0 if self._process is None else self._process.wait()
        self._process = None
        return code
