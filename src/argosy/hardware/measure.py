"""A short measurement of this machine's CPU: matrix products, memory, and the link between two processes.

Numpy's products run on the same BLAS family as torch's on a CPU, so the figures calibrate plans for CPU ranks.
A GPU is measured by the engine, not here. Takes about a second.
"""

import multiprocessing
import time
from dataclasses import dataclass
from multiprocessing import connection

import numpy as np

REPEATS = 3


@dataclass(frozen=True)
class Measured:
    """Rates of one process on this machine, best of REPEATS."""

    matmul_flops_per_s: float
    """fp32."""
    memory_bytes_per_s: float
    """Copying between arrays larger than any cache: bytes read and written."""
    link_bytes_per_s: float
    """One way through a pipe to another process."""
    link_latency_s: float
    """One small message, half of a round trip."""


def measure(size: int = 768, copied_bytes: int = 2**26, sent_bytes: int = 2**24) -> Measured:
    """Measure now; products of `size` × `size`, copies and messages of so many bytes."""
    a = np.ones((size, size), dtype=np.float32)
    out = np.empty_like(a)
    source, target = np.ones(copied_bytes // 8), np.empty(copied_bytes // 8)
    product_s = min(_seconds(lambda: np.matmul(a, a, out=out)) for _ in range(REPEATS))
    copy_s = min(_seconds(lambda: np.copyto(target, source)) for _ in range(REPEATS))
    link, latency = _link(sent_bytes)
    return Measured(2.0 * size**3 / product_s, 2.0 * copied_bytes / copy_s, link, latency)


def _seconds(work: object) -> float:
    assert callable(work)
    started = time.perf_counter()
    work()
    return max(time.perf_counter() - started, 1e-9)


def _link(sent_bytes: int) -> tuple[float, float]:
    ours, theirs = multiprocessing.Pipe()
    echo = multiprocessing.Process(target=_echo, args=(theirs,), daemon=True)
    echo.start()
    theirs.close()
    try:

        def round_trip(message: bytes) -> float:
            def go() -> None:
                ours.send_bytes(message)
                ours.recv_bytes()

            return min(_seconds(go) for _ in range(REPEATS))

        small = round_trip(b"x")
        large = round_trip(bytes(sent_bytes))  # answered by one byte
        return sent_bytes / max(large - small, 1e-9), small / 2.0
    finally:
        ours.send_bytes(b"")
        echo.join(timeout=5)
        ours.close()


def _echo(pipe: connection.Connection) -> None:
    while pipe.recv_bytes():
        pipe.send_bytes(b"y")
