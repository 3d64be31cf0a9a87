"""Who may change the checkpoints of a run: the newest attempt alone.

Each attempt has a number, its generation. The folder remembers the highest that has shown up; a commit, a deletion
or a change of a manifest is made under a lock and only by that one. A writer that hung while its attempt was
replaced comes too late, whatever it does.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from argosy.checkpoint.folders import FENCE_FILE
from argosy.errors import StoppedError


class Fenced(StoppedError):
    """A newer attempt has taken over."""


@contextlib.contextmanager
def fenced(checkpoints: Path, generation: int) -> Iterator[None]:
    """Hold the right to change `checkpoints` for a moment; from now on older generations have none.

    Raises Fenced when a newer generation has shown up, OSError when the folder cannot be written or has no locks.
    """
    checkpoints.mkdir(parents=True, exist_ok=True)
    # The lock is the kernel's: it ends with the process, however that dies.
    descriptor = os.open(checkpoints / FENCE_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        newest = _newest(os.pread(descriptor, 32, 0))
        if newest > generation:
            raise Fenced(f"attempt {newest} has taken over from attempt {generation}", where=str(checkpoints))
        if newest < generation:
            # One write of fixed length within a block: a reader after a crash sees the old number or the new one.
            os.pwrite(descriptor, f"{generation:020d}\n".encode(), 0)
            os.fsync(descriptor)
        yield
    finally:
        os.close(descriptor)


def claim(checkpoints: Path, generation: int) -> None:
    """Shut out all older attempts, at the start of a new one."""
    with fenced(checkpoints, generation):
        pass


def _newest(content: bytes) -> int:
    """0 where there was none, or where a crash left something else: then the next commit writes it anew."""
    text = content.strip()
    return int(text) if text.isdigit() else 0
