"""The snapshots of one rank: a header page and one or two buffers in an anonymous file of shared memory. No torch.

::

    page 0    magic, version, shape of the file; the last order that a writer has answered; the generation that may
              write; then two words for each buffer: step held (-1: none), bytes of its note
    then      for each buffer: room for a note (JSON: what is not a tensor), and the tensors' bytes

The step of a buffer is set to -1 before anything in it changes and written after everything else, so a process that is
killed while it copies leaves the other buffer whole. The memory belongs to nobody: it lives as long as any process
holds its descriptor, so a host (:mod:`argosy.checkpoint.snapshot_server`) keeps it over the death of a rank, and
nothing is left behind when all are gone. (`multiprocessing.shared_memory` would be unlinked by the first process that
exits, and a file in /dev/shm would stay for ever.)
"""

import errno
import json
import mmap
import os
import struct
from typing import Any

from argosy.errors import InputError

_MAGIC = int.from_bytes(b"ARGOSNAP", "little")
_VERSION = 1
_SHAPE = struct.Struct("<QQQQQ")  # magic, version, buffers, note_bytes, data_bytes
_ANSWERED = 6  # index of a word in the header, each of 8 bytes
_GENERATION = 7
_WORDS_AT = 8  # index of the first word of buffer 0
EMPTY = -1
NOTE_BYTES = 1 << 20
"""Room for what is not a tensor: the loop's own state, with every evaluation so far."""


class SharedBuffers:
    """A mapped file of this format. `data_bytes` is the room for tensors in each of its `count` buffers."""

    def __init__(self, fd: int):
        """Map the file behind `fd`, which this object now owns; all its pages are touched.

        Raises InputError when it is no file of this format.
        """
        self.fd = fd
        shape = _shape(fd)
        if shape is None or os.fstat(fd).st_size != file_bytes(*shape):
            raise InputError("is no snapshot of this version", where=f"shared memory of {os.fstat(fd).st_size} bytes")
        self.count, self._note_bytes, self.data_bytes = shape
        self._map = mmap.mmap(fd, file_bytes(*shape), flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._words = memoryview(self._map)[: mmap.PAGESIZE].cast("q")

    @classmethod
    def create(cls, count: int, data_bytes: int, note_bytes: int = NOTE_BYTES) -> "SharedBuffers":
        """Empty buffers whose memory is there already: no first touch slows a snapshot down later.

        Raises OSError (ENOMEM) where there is not enough.
        """
        if not hasattr(os, "memfd_create"):
            raise OSError(errno.ENOSYS, "this system has no anonymous shared files")
        fd = os.memfd_create("argosy-snapshots", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, file_bytes(count, note_bytes, data_bytes))
            os.pwrite(fd, _SHAPE.pack(_MAGIC, _VERSION, count, note_bytes, data_bytes), 0)
            for index in range(count):
                os.pwrite(fd, struct.pack("<qq", EMPTY, 0), 8 * _word(index))
            return cls(fd)
        except BaseException:
            os.close(fd)
            raise

    @property
    def generation(self) -> int:
        """The attempt that writes here."""
        return self._words[_GENERATION]

    def claim(self, generation: int) -> None:
        """From now on only attempt `generation` writes: a rank of an older one that wakes up must keep off."""
        self._words[_GENERATION] = generation

    @property
    def answered(self) -> int:
        """Number of the last order that the writer of this memory has answered: a look here costs no system call."""
        return self._words[_ANSWERED]

    @answered.setter
    def answered(self, number: int) -> None:
        self._words[_ANSWERED] = number

    def steps(self) -> list[int]:
        """The step that each buffer holds; -1 for none."""
        return [self._words[_word(index)] for index in range(self.count)]

    def invalidate(self, index: int) -> None:
        """Say that the buffer holds nothing: it is about to change."""
        self._words[_word(index)] = EMPTY

    def commit(self, index: int, step: int, note: dict[str, Any]) -> None:
        """Say that the buffer now holds the state after `step` updates, and what goes with it.

        Raises ValueError when the note does not fit.
        """
        text = json.dumps(note).encode()
        if len(text) > self._note_bytes:
            raise ValueError(f"a note of {len(text)} bytes does not fit into {self._note_bytes}")
        begin = self._note_at(index)
        self._map[begin : begin + len(text)] = text
        self._words[_word(index) + 1] = len(text)
        self._words[_word(index)] = step

    def note(self, index: int) -> dict[str, Any]:
        """What was committed with the step of this buffer."""
        begin = self._note_at(index)
        return json.loads(self._map[begin : begin + self._words[_word(index) + 1]])

    def data(self, index: int) -> memoryview:
        """The tensors' bytes of a buffer."""
        begin = self._note_at(index) + _pages(self._note_bytes)
        return memoryview(self._map)[begin : begin + self.data_bytes]

    def _note_at(self, index: int) -> int:
        return mmap.PAGESIZE + index * _buffer_bytes(self._note_bytes, self.data_bytes)


def file_bytes(count: int, note_bytes: int, data_bytes: int) -> int:
    """Size of the whole file."""
    return mmap.PAGESIZE + count * _buffer_bytes(note_bytes, data_bytes)


def steps_held(fd: int) -> list[int]:
    """Steps of the whole snapshots behind a descriptor, newest first; nothing is mapped."""
    shape = _shape(fd)
    if shape is None:
        return []
    words = (struct.unpack("<q", os.pread(fd, 8, 8 * _word(index)))[0] for index in range(shape[0]))
    return sorted((step for step in words if step != EMPTY), reverse=True)


def _shape(fd: int) -> tuple[int, int, int] | None:
    head = os.pread(fd, _SHAPE.size, 0)
    if len(head) < _SHAPE.size:
        return None
    magic, version, *shape = _SHAPE.unpack(head)
    count, note_bytes, data_bytes = shape
    return (count, note_bytes, data_bytes) if (magic, version) == (_MAGIC, _VERSION) and count in (1, 2) else None


def _word(index: int) -> int:
    return _WORDS_AT + 2 * index


def _buffer_bytes(note_bytes: int, data_bytes: int) -> int:
    return _pages(note_bytes) + _pages(data_bytes)


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
