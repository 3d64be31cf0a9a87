"""Pieces of tensors and where they lie in a checkpoint, as plain data. No torch here."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass

import xxhash

from argosy.errors import UsageError

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
"""Element types that a checkpoint can hold, by torch's name."""


@dataclass(frozen=True)
class Chunk:
    """A rectangular piece of a named tensor: all of it, or the part that one rank holds.

    `shape` is of the whole tensor; the piece begins at `offsets` and extends over `sizes` in each dim.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.sizes) * item_bytes(self.dtype)


@dataclass(frozen=True)
class Shard:
    """A chunk that is to be written, and where its content comes from.

    `content` returns `chunk.bytes` bytes in row-major order as any contiguous buffer. It is called when the shard's
    turn has come, so a reader of files need not hold more than one.
    """

    chunk: Chunk
    content: Callable[[], memoryview]


@dataclass(frozen=True)
class Stored:
    """A chunk in a file of a checkpoint: `at` is the position of its first byte, `digest` what :func:`begin_digest`
    says over it and its content ("" while nothing is written)."""

    chunk: Chunk
    file: str
    at: int
    digest: str = ""


@dataclass(frozen=True)
class FileDigest:
    """Size of a file and digest of those of its bytes that belong to no chunk: each byte is covered once."""

    bytes: int
    xxh3_128: str


@dataclass(frozen=True)
class RankFile:
    """One file of shards as it was written: what its writer hands to the commit."""

    name: str
    digest: FileDigest
    stored: tuple[Stored, ...]


def begin_digest(chunk: Chunk) -> "xxhash.xxh3_128":
    """A digest that knows whose content will follow: swapped shards of equal shape differ."""
    identity = [chunk.name, chunk.dtype, chunk.shape, chunk.offsets, chunk.sizes]
    return xxhash.xxh3_128(json.dumps(identity).encode())


def item_bytes(dtype: str) -> int:
    """Bytes of one element. Raises UsageError for a type that cannot be stored."""
    if dtype not in ITEM_BYTES:
        raise UsageError(f"a checkpoint cannot hold elements of type {dtype}")
    return ITEM_BYTES[dtype]
