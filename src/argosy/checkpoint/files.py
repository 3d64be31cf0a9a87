"""Plain files of a checkpoint: read in bounded memory, written so that they last. No torch here."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

BLOCK_BYTES = 1 << 20
"""Read and digested at once: it stays in the cache in between."""


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of a plain file; OSError for anything else, as a pipe would wait for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("is no plain file")
        yield descriptor
    finally:
        os.close(descriptor)


def read_into(descriptor: int, at: int, buffer: memoryview, digest: "xxhash.xxh3_128") -> None:
    """Fill `buffer` from `at` on and add it to `digest`, block by block. OSError when the file ends before."""
    while buffer.nbytes:
        count = os.preadv(descriptor, [buffer[:BLOCK_BYTES]], at)
        if count == 0:
            raise OSError("ends too early")
        digest.update(buffer[:count])
        buffer, at = buffer[count:], at + count


def pass_over(descriptor: int, at: int, size: int, scratch: memoryview, digest: "xxhash.xxh3_128") -> None:
    """Add `size` bytes from `at` on to `digest`."""
    while size > 0:
        block = scratch[: min(size, len(scratch))]
        read_into(descriptor, at, block, digest)
        at, size = at + block.nbytes, size - block.nbytes


def write_file(path: Path, content: bytes) -> None:
    """Write a small file and flush it to the device."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """Put `content` under a name so that a reader, also one after a crash, sees what was there or all of it."""
    temporary = path.with_name(f".{path.name}.tmp")
    write_file(temporary, content)
    temporary.rename(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Flush a folder's list of names to the device."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
