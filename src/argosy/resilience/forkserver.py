"""A process that has imported and warmed torch, from which workers start in milliseconds.

The supervisor starts it once (``python -m argosy.resilience.warm``) and asks it for workers. A worker is forked twice:
its parent ends at once, so the kernel hands it to the nearest *subreaper*, which is the supervisor. So workers are the
supervisor's own children, as if it had started them itself: it sees how they ended, they die with it, and nothing
depends on the server once they run. Orphans of workers (data loaders, say) come to the supervisor too, not to pid 1.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.errors import StoppedError

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37
START_LIMIT_S = 120.0
"""A fork server that is not warm by then never will be."""
FORK_LIMIT_S = 20.0

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Order:
    """One worker to be forked."""

    arguments: Sequence[str]
    env: Mapping[str, str]
    """On top of the server's own."""
    log: Path
    """What it prints is appended here."""


class ForkServer:
    """Use as a context manager: leaving it ends the server. Workers that it forked live on."""

    def __init__(self, entry: str, log: Path | None = None):
        """Start warming. `entry` is ``package.module:function``, called in each worker.

        The module is imported beforehand, and its ``preload()`` called: what that imports is shared by the workers.
        """
        self._entry = entry
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._was_reaper = _is_subreaper()
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        command = [sys.executable, "-m", "argosy.resilience.warm", str(theirs.fileno()), entry]
        # One thread: a pool of threads does not survive a fork. A worker sets its own number.
        env = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        with (log or Path(os.devnull)).open("ab") as stream:
            self._process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                pass_fds=[theirs.fileno()],
                process_group=0,
                preexec_fn=die_with(os.getpid()),
            )
        theirs.close()
        self._log = log
        self._lines = self._socket.makefile("rb")
        self.warm = False
        """Workers can be forked at once."""

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_warm(self, wake: int | None = None) -> bool:
        """Block until workers can be forked; False when `wake` became readable first."""
        if self.warm:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(START_LIMIT_S * 1000)}
        if ready and self._socket.fileno() not in ready:
            return False
        self._answer(0.0)
        self.warm = True
        return True

    def fork(self, workers: Sequence[Order]) -> list[int]:
        """Start workers that call the entry; their pids, in order.

        All at once: each fork copies the page tables of everything that is loaded, and their common parent is one.
        """
        self.wait_until_warm()
        requests = [
            {"arguments": list(one.arguments), "env": dict(one.env), "log": str(one.log), "supervisor": os.getpid()}
            for one in workers
        ]
        self._socket.sendall(json.dumps(requests).encode() + b"\n")
        return [int(pid) for pid in self._answer(FORK_LIMIT_S)["pids"]]

    def close(self) -> None:
        """End the server; its workers live on. A closed one may be closed again."""
        if self._socket.fileno() < 0:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._lines.close()
        self._socket.close()
        libc.prctl(PR_SET_CHILD_SUBREAPER, int(self._was_reaper), 0, 0, 0)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        readable, _, _ = select.select([self._socket], [], [], limit_s or None)
        line = self._lines.readline() if readable else b""
        if not line:
            how = f"does not answer within {limit_s:g} s"
            if readable:
                how = f"ended with code {self._process.wait()}"
            raise StoppedError(
                f"the server that workers are forked from {how}",
                where=str(self._log) if self._log else None,
                do="see its log; with resilience.warm = false workers start without it",
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


def die_with(parent: int) -> Callable[[], None]:
    """For `preexec_fn`: the child dies when `parent`, which starts it, dies."""

    def in_the_child() -> None:
        if hasattr(libc, "prctl"):  # elsewhere it outlives its parent
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return in_the_child


def _is_subreaper() -> bool:
    value = ctypes.c_int(0)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0)
    return bool(value.value)
