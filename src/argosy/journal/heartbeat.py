"""A page of 64 bytes per rank that says how far it came, even after SIGKILL.

The page is a mapped file: a store costs a fraction of a microsecond, and the kernel keeps what a dead process wrote.
"""

import mmap
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from argosy.errors import InputError

WORDS = 8
BYTES = WORDS * 8

MONO, STEP, STATE, SEQ, ATTEMPT, RANK, PID, BOOT = range(WORDS)


class State(IntEnum):
    STARTING = 0
    STEPPING = 1
    CLOSED = 2


def boot_word(boot_id: str) -> int:
    """The first 60 bits of a boot id, which fit into a word of the page."""
    return int(boot_id.replace("-", "")[:15], 16)


@dataclass(frozen=True)
class Beat:
    """What a page said when it was read."""

    mono_ns: int
    step: int
    """The step under way."""
    state: State
    seq: int
    """Number of the last journal record that the rank wrote; the file should end with it."""
    attempt: int
    rank: int
    pid: int
    boot: int


class HeartbeatPage:
    """The writing side. `words` is what the hot path stores into."""

    def __init__(self, path: Path, *, attempt: int, rank: int, boot_id: str):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.pwrite(handle, bytes(BYTES), 0)  # allocated now: a full disk later cannot fault the mapping
            self._map = mmap.mmap(handle, BYTES)
        finally:
            os.close(handle)
        self.words = memoryview(self._map).cast("q")
        self.words[ATTEMPT], self.words[RANK], self.words[PID] = attempt, rank, os.getpid()
        self.words[BOOT] = boot_word(boot_id)

    def close(self) -> None:
        self.words.release()
        self._map.close()


def read_beat(path: Path) -> Beat | None:
    """The page in a file, or None if nobody has beaten in it yet. Raises InputError if it is no page."""
    content = path.read_bytes()
    if not content:
        return None  # made a moment ago
    if len(content) != BYTES:
        raise InputError(f"is no heartbeat page: {len(content)} bytes, not {BYTES}", where=str(path))
    words = memoryview(content).cast("q")
    if words[MONO] == 0:
        return None
    if words[STATE] not in tuple(State):
        raise InputError(f"is no heartbeat page: state {words[STATE]}", where=str(path))
    return Beat(words[MONO], words[STEP], State(words[STATE]), words[SEQ], *words[ATTEMPT:])
