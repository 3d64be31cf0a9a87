"""Find, start and ask the process that keeps a run's snapshots on this machine. No torch here.

One host serves one run on one machine, whoever starts it. A rank calls :meth:`SnapshotHost.start`; a supervisor
adopts: ``SnapshotHost.adopt(name)`` connects to a living host or returns None, and as long as the connection is open
the host lives, whatever becomes of the ranks.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.checkpoint.snapshot_server import MESSAGE_BYTES, same_user
from argosy.errors import StoppedError

LINGER_S = 600.0
"""How long a host waits for the next attempt when nobody is connected."""
_ANSWER_S = 30.0


def host_name(run: Path, run_id: str) -> str:
    """Name of the host of a run; a copy of the run's folder has another."""
    place = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:16]
    return f"argosy-snapshots/{os.getuid()}/{run_id}/{place}"


@dataclass(frozen=True)
class Held:
    """What a host holds for one rank."""

    rank: int
    identity: str
    bytes: int
    steps: tuple[int, ...]
    """Of its whole snapshots, newest first."""


class SnapshotHost:
    """A connection to a host. Use as a context manager, or :meth:`close` it; the host goes on."""

    def __init__(self, connection: socket.socket):
        self._socket = connection

    @classmethod
    def adopt(cls, name: str) -> "SnapshotHost | None":
        """Connect to the living host of this name; None when there is none."""
        if not hasattr(os, "memfd_create"):
            return None  # memory that outlives its maker, and a name that dies with its host, are Linux's
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(_ANSWER_S)
        try:
            connection.connect("\0" + name)
        except ConnectionRefusedError:
            connection.close()
            return None
        if not same_user(connection):
            connection.close()
            raise StoppedError("another user's process has the name of the snapshot host", where=name)
        return cls(connection)

    @classmethod
    def start(cls, name: str, linger_s: float = LINGER_S) -> "SnapshotHost":
        """Connect to the host of this name; start it, as nobody's child, when there is none.

        Raises StoppedError when it cannot be started.
        """
        if host := cls.adopt(name):
            return host
        if not hasattr(os, "memfd_create"):
            raise StoppedError("this system has no memory that outlives its process (Linux has)")
        command = [sys.executable, "-m", "argosy.checkpoint.snapshot_server", name, str(linger_s)]
        # A session of its own: neither a Ctrl-C in the terminal nor the end of a rank's process group reaches it.
        quiet = subprocess.DEVNULL
        started = subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, check=False)
        if host := cls.adopt(name):
            return host
        raise StoppedError(f"the snapshot host did not start (exit code {started.returncode})", where=name)

    def __enter__(self) -> "SnapshotHost":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the host; it ends by itself when nobody comes for it."""
        self._socket.close()

    def keep(self, rank: int, identity: str, fd: int) -> None:
        """Hold the memory behind `fd` for `rank`, instead of what was held for it before."""
        self._ask({"op": "keep", "rank": rank, "identity": identity}, fd)

    def take(self, rank: int, identity: str) -> int | None:
        """A descriptor of the memory held for `rank`; None when there is none of this identity."""
        answer, fds = self._ask({"op": "take", "rank": rank, "identity": identity})
        return fds[0] if answer["found"] else None

    def held(self) -> list[Held]:
        """What is held, by rank."""
        answer, _ = self._ask({"op": "list"})
        return [Held(**row | {"steps": tuple(row["steps"])}) for row in answer["held"]]

    def drop(self, rank: int | None = None) -> None:
        """Let go of what is held for `rank`, or for all. Memory that a living rank has mapped stays with that rank."""
        self._ask({"op": "drop", "rank": rank})

    def stop(self) -> None:
        """End the host, and with it every snapshot that no living process has mapped."""
        self._ask({"op": "stop"})
        self.close()

    def _ask(self, question: dict[str, Any], fd: int | None = None) -> tuple[dict[str, Any], list[int]]:
        try:
            socket.send_fds(self._socket, [json.dumps(question).encode()], [] if fd is None else [fd])
            text, fds, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES, 1)
        except OSError as error:
            raise StoppedError(f"the snapshot host does not answer ({error})", where="memory tier") from error
        if not text:
            raise StoppedError("the snapshot host is gone", where="memory tier")
        answer = json.loads(text)
        if "error" in answer:
            raise StoppedError(f"the snapshot host refuses: {answer['error']}", where="memory tier")
        return answer, fds


def newest_common(held: list[Held]) -> int | None:
    """The newest step that every one of these ranks holds whole; None when there is none."""
    common = set.intersection(*(set(one.steps) for one in held)) if held else set()
    return max(common, default=None)
