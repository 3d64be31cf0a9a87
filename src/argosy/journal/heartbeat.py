"""A small page per rank that says how far it came and what it is doing, even after SIGKILL.

The page is a mapped file: a store costs a fraction of a microsecond, and the kernel keeps what a dead process wrote.
Who watches a rank reads only its page, so a rank that hangs cannot keep its watcher waiting.
"""

import mmap
import os
import threading
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from argosy.errors import InputError
from argosy.journal.clock import mono_ns

MONO, STEP, STATE, SEQ, ATTEMPT, RANK, PID, BOOT, PHASE, SPAN, BEAT, COLLECTIVES, STEP_NS, STEPS = range(14)
OWN = 16
"""First of :data:`OWN_STEPS` words, a ring of what the last steps took this rank without its waits for others."""
OWN_STEPS = 64
WORDS = OWN + OWN_STEPS
BYTES = WORDS * 8
OLD_BYTES = 64
"""Length of a page by Argosy before there was a supervisor: the words up to BOOT."""
BEAT_S = 0.5
"""How often a rank beats when nothing keeps its interpreter from it."""
NOWHERE = -1
"""In PHASE or SPAN: between declared phases, outside all spans."""


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
    phase: int = NOWHERE
    """Innermost declared phase, as a position in :data:`argosy.journal.phys.PHYS`."""
    span: int = NOWHERE
    """Outermost declared span (start-up phase, evaluation, save), likewise."""
    beat_ns: int = 0
    """Last beat of the rank's own thread: it stops when the process is frozen or its interpreter is held."""
    collectives: int = 0
    """Collectives issued so far, over all groups."""
    step_ns: int = 0
    """Duration of the last step."""
    steps: int = 0
    """Steps ended in this attempt."""
    own_ns: tuple[int, ...] = ()
    """Of the last steps, oldest first: time without waits for other ranks."""


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
        self.words[PHASE] = self.words[SPAN] = NOWHERE
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start_beating(self) -> None:
        """Beat each :data:`BEAT_S` from a thread of its own until the page is closed."""
        self.words[BEAT] = mono_ns()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._end.wait(BEAT_S):
            self.words[BEAT] = mono_ns()

    def close(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        self.words.release()
        self._map.close()


def read_beat(path: Path) -> Beat | None:
    """The page in a file, or None if nobody has beaten in it yet. Raises InputError if it is no page."""
    content = path.read_bytes()
    if not content:
        return None  # made a moment ago
    if len(content) not in (BYTES, OLD_BYTES):
        raise InputError(f"is no heartbeat page: {len(content)} bytes, not {BYTES}", where=str(path))
    words = memoryview(content).cast("q")
    if words[STATE] not in tuple(State):
        raise InputError(f"is no heartbeat page: state {words[STATE]}", where=str(path))
    return as_beat(words)


def as_beat(words: memoryview) -> Beat | None:
    """What the words of a page say, or None if nobody has beaten in it yet."""
    if words[MONO] == 0:
        return None
    attempt, rank, pid, boot = words[ATTEMPT : BOOT + 1]
    beat = Beat(words[MONO], words[STEP], State(words[STATE]), words[SEQ], attempt, rank, pid, boot)
    if len(words) < WORDS:
        return beat
    phase, span, beat_ns, collectives, step_ns, steps = words[PHASE : STEPS + 1]
    own_ns = tuple(words[OWN + number % OWN_STEPS] for number in range(max(0, steps - OWN_STEPS), steps))
    return replace(
        beat,
        phase=phase,
        span=span,
        beat_ns=beat_ns,
        collectives=collectives,
        step_ns=step_ns,
        steps=steps,
        own_ns=own_ns,
    )
