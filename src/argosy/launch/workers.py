"""The processes of one attempt: started together, watched, and gone together.

A worker never outlives its launcher (the kernel kills it when the launcher dies), has a process group of its own (a
Ctrl-C in the terminal reaches only the launcher, which asks for a clean stop), and writes what it prints to a file.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from argosy.resilience.forkserver import ForkServer, Order, die_with


@dataclass(frozen=True)
class Ended:
    """How one worker ended."""

    rank: int
    exit_code: int | None
    """None when a signal killed it."""
    signal: int | None = None

    @property
    def how(self) -> str:
        """For people: ``ended with exit code 70``, ``was killed by SIGKILL``."""
        if self.signal is not None:
            return f"was killed by {signal_name(self.signal)}"
        return f"ended with exit code {self.exit_code}"


@dataclass(frozen=True)
class _Process:
    pid: int
    pidfd: int | None
    """Becomes readable when the process ends. None where the kernel has no such thing (macOS): it is then looked at."""
    popen: subprocess.Popen[bytes] | None
    """None for one that the fork server made."""


_LOOK_EVERY_S = 0.05
"""How often a process without a descriptor is looked at."""


class Workers:
    """Running workers by rank. Use as a context manager: leaving it leaves no process behind."""

    def __init__(self) -> None:
        self._running: dict[int, _Process] = {}
        self.ended: list[Ended] = []
        """In the order in which the ends were seen."""

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate(grace_s=0)

    @property
    def running(self) -> list[int]:
        """Ranks that still run."""
        return sorted(self._running)

    @property
    def pids(self) -> dict[int, int]:
        """Process ids of the ranks that still run."""
        return {rank: process.pid for rank, process in sorted(self._running.items())}

    def start(self, rank: int, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        """Start one worker with `env` on top of the launcher's own; what it prints is appended to `log`."""
        with log.open("ab") as stream:
            process = subprocess.Popen(
                command,
                env=os.environ | env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=die_with(os.getpid()),
            )
        self._running[rank] = _Process(process.pid, _pidfd(process.pid), process)

    def fork(self, server: ForkServer, orders: Mapping[int, Order]) -> None:
        """Start workers, by rank, as forks of the warm `server`; they are this process's children all the same."""
        for rank, pid in zip(orders, server.fork(list(orders.values())), strict=True):
            self._running[rank] = _Process(pid, _pidfd(pid), None)

    def wait(self, timeout_s: float, wake: int | None = None) -> list[Ended]:
        """Workers that ended, as soon as one does; empty after `timeout_s` or when `wake` becomes readable.

        Of several that ended together, those that a signal killed come first: the others mostly died of it.
        """
        poll = select.poll()
        watched = [p.pidfd for p in self._running.values() if p.pidfd is not None]
        for descriptor in [*watched, *([] if wake is None else [wake])]:
            poll.register(descriptor, select.POLLIN)
        give_up = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, give_up - time.monotonic())
            woken = poll.poll(1000 * (left_s if len(watched) == len(self._running) else min(left_s, _LOOK_EVERY_S)))
            ended = [end for rank in list(self._running) if (end := self._reap(rank)) is not None]
            if woken or ended or time.monotonic() >= give_up:
                break
        ended.sort(key=lambda end: (end.signal is None, end.rank))
        self.ended += ended
        return ended

    def kill(self, rank: int) -> None:
        """SIGKILL one rank and what it started; a frozen process dies of it too."""
        _signal_group(self._running[rank].pid, signal.SIGKILL)

    def terminate(self, grace_s: float) -> None:
        """End all that still run: SIGTERM, and SIGKILL for who is there after `grace_s`; returns when all are gone."""
        limits = ((signal.SIGTERM, grace_s), (signal.SIGKILL, float("inf")))
        for number, limit_s in limits if grace_s else limits[1:]:
            for process in self._running.values():
                _signal_group(process.pid, number)
            give_up = time.monotonic() + limit_s
            while self._running and (left := give_up - time.monotonic()) > 0:
                self.wait(min(left, 1.0))

    def _reap(self, rank: int) -> Ended | None:
        """How this worker ended; None while it runs. What it started goes with it."""
        process = self._running[rank]
        pid, status = os.waitpid(process.pid, os.WNOHANG)
        if not pid:
            return None
        del self._running[rank]
        if process.pidfd is not None:
            os.close(process.pidfd)
        code = os.waitstatus_to_exitcode(status)
        if process.popen is not None:
            process.popen.returncode = code
        _signal_group(process.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # orphans of it that came to us
            while os.waitpid(-process.pid, os.WNOHANG)[0]:
                pass
        return Ended(rank, None, -code) if code < 0 else Ended(rank, code)


def _pidfd(pid: int) -> int | None:
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


class LogFollower:
    """The lines that a worker has added to its log since the last look."""

    def __init__(self, log: Path):
        self._log = log
        self._read_bytes = 0

    def new_lines(self) -> list[str]:
        """Whole lines only; a line that is still being written comes next time."""
        with self._log.open("rb") as stream:
            stream.seek(self._read_bytes)
            whole = stream.read().rpartition(b"\n")
        self._read_bytes += len(whole[0]) + len(whole[1])
        return whole[0].decode(errors="replace").splitlines()


def last_lines(log: Path, count: int) -> list[str]:
    """The last `count` lines that a worker printed, from the last 64 KiB of its log."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 65_536))
            return stream.read().decode(errors="replace").splitlines()[-count:]
    except FileNotFoundError:
        return []


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; ``signal 64`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
