"""The manifest of a checkpoint: plain data that says what the folder holds and proves that it is whole.

It is written last, before the folder gets its final name, so a folder named ``step-S`` without a readable
manifest is damaged, not young. It carries a digest of itself, of each chunk of a tensor and of all other bytes of
each file: no flipped bit goes unnoticed.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import xxhash
from pydantic import TypeAdapter, ValidationError

from argosy.checkpoint.files import opened
from argosy.checkpoint.shards import ITEM_BYTES, Chunk, FileDigest, Stored
from argosy.errors import InputError

SCHEMA = "argosy.checkpoint/2"
FILE_NAME = "manifest.json"
LARGEST_BYTES = 1 << 28
"""Of a manifest that is read: a million chunks. More is no manifest, and would only fill the memory."""
_OWN_DIGEST = "xxh3_128"


class Unreadable(InputError):
    """A checkpoint that may be whole and cannot be judged here: of another version, or without permission."""


@dataclass(frozen=True)
class StoredChunk:
    """Where a piece of a tensor lies: `at` is its first byte in `file`."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    at: int
    xxh3_128: str


@dataclass(frozen=True)
class StoredTensor:
    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[StoredChunk, ...]

    @property
    def bytes(self) -> int:
        return Chunk("", self.dtype, self.shape, (), self.shape).bytes


@dataclass(frozen=True)
class Manifest:
    """`training` is the loop's own state as plain data; `files` lists every other file of the folder."""

    run_id: str
    step: int
    generation: int
    """Attempt that wrote it."""
    world_size: int
    layout: dict[str, Any]
    learning_hash: str
    data_digest: str
    code_version: str
    created_wall_s: float
    training: dict[str, Any]
    files: dict[str, FileDigest] = field(default_factory=dict)
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    vocabulary_digest: str = ""
    """Which id stands for which token; empty where nobody knows."""
    model: dict[str, Any] = field(default_factory=dict)
    """The recipe's model table with the size of the vocabulary; empty where nobody knows."""
    recipe_hash: str = ""
    running_hash: str = ""
    data_position: int | None = None
    """Sequences used so far: the next step begins with this one of the run's order. None: no run wrote it."""
    verified_wall_s: float | None = None
    """When every byte was read back from the device and found right; None: written, not yet verified."""
    schema: str = SCHEMA

    @property
    def bytes(self) -> int:
        """Of all files but the manifest."""
        return sum(file.bytes for file in self.files.values())

    @property
    def identity(self) -> tuple[str, int, int, float]:
        """Which save it is of."""
        return self.run_id, self.step, self.generation, self.created_wall_s

    def stored(self, names: Iterable[str] | None = None) -> Iterator[Stored]:
        """The chunks of tensors (all, or those of `names`) with their places."""
        for name in self.tensors if names is None else names:
            tensor = self.tensors[name]
            for chunk in tensor.chunks:
                piece = Chunk(name, tensor.dtype, tensor.shape, chunk.offsets, chunk.sizes)
                yield Stored(piece, chunk.file, chunk.at, chunk.xxh3_128)

    def to_json(self) -> str:
        values = asdict(self)
        return json.dumps(values | {_OWN_DIGEST: _digest(values)}, indent=1)


def by_tensor(stored: Iterable[Stored]) -> dict[str, StoredTensor]:
    """The manifest's table of tensors, in the order of their names and places."""
    groups = groupby(sorted(stored, key=lambda one: (one.chunk.name, one.chunk.offsets)), lambda one: one.chunk.name)
    tensors = {}
    for name, group in groups:
        pieces = list(group)
        chunks = (StoredChunk(one.chunk.offsets, one.chunk.sizes, one.file, one.at, one.digest) for one in pieces)
        tensors[name] = StoredTensor(pieces[0].chunk.dtype, pieces[0].chunk.shape, tuple(chunks))
    return tensors


def read_manifest(folder: Path) -> Manifest:
    """Raises InputError when the manifest is missing, damaged, of another step or of a newer version."""
    path = folder / FILE_NAME
    manifest = parse_manifest(_read(path), str(path))
    if folder.name != f"step-{manifest.step}":
        raise InputError(f"manifest of step {manifest.step} in a folder of another name", where=str(path))
    return manifest


def parse_manifest(content: bytes, where: str) -> Manifest:
    """The manifest in `content`, whatever that is. Raises InputError alone.

    Its own digest is the same in every version, so that another version is told from a damaged one.
    """
    try:
        values = json.loads(content)
        if values.pop(_OWN_DIGEST) != _digest(values):
            raise InputError("damaged manifest", where=where)
        if values["schema"] != SCHEMA:
            raise _of_another_kind(values["schema"], where)
        # Its digest proves it whole: keys that this version does not know are a later version's, not damage.
        manifest = _TYPED.validate_python(values)
        _check(manifest)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ValidationError) as error:
        raise InputError("damaged manifest", where=where) from error
    return manifest


_TYPED = TypeAdapter(Manifest)


def not_permitted(path: Path) -> Unreadable:
    return Unreadable("may not be read", where=str(path), do="give this user the permission")


def _read(path: Path) -> bytes:
    try:
        with opened(path) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > LARGEST_BYTES:
                raise InputError("damaged manifest: too large to be one", where=str(path))
            return os.pread(descriptor, size, 0)
    except PermissionError as error:
        raise not_permitted(path) from error
    except OSError as error:
        raise InputError(f"no readable manifest ({error.strerror or error})", where=str(path)) from error


def _of_another_kind(schema: object, where: str) -> InputError:
    name, _, version = str(schema).partition("/")
    if name != SCHEMA.partition("/")[0]:
        return InputError("damaged manifest", where=where)
    older = version.isdecimal() and int(version) < int(SCHEMA.partition("/")[2])
    what = f"checkpoint of version {schema!r}, this Argosy reads {SCHEMA!r}"
    do = "load it with the version that wrote it" if older else "update Argosy"
    return Unreadable(what, where=where, do=do)


def _check(manifest: Manifest) -> None:
    """What types cannot say; ValueError where a manifest names what cannot be."""
    for name in manifest.files:
        if name in ("", ".", "..", FILE_NAME) or "/" in name or "\0" in name:
            raise ValueError(f"file name {name!r}")
    for name, tensor in manifest.tensors.items():
        if tensor.dtype not in ITEM_BYTES:
            raise ValueError(f"{name}: elements of type {tensor.dtype!r}")
    for one in manifest.stored():
        chunk = one.chunk
        if not len(chunk.shape) == len(chunk.offsets) == len(chunk.sizes):
            raise ValueError(f"{chunk.name}: dims differ")
        for size, offset, total in zip(chunk.sizes, chunk.offsets, chunk.shape, strict=True):
            if min(size, offset) < 0 or offset + size > total:
                raise ValueError(f"{chunk.name}: a chunk outside the tensor")
        if one.at < 0 or one.at + chunk.bytes > manifest.files[one.file].bytes:
            raise ValueError(f"{chunk.name}: a chunk outside its file")
    for name, tensor in manifest.tensors.items():
        if sum(math.prod(chunk.sizes) for chunk in tensor.chunks) != math.prod(tensor.shape):
            raise ValueError(f"{name}: chunks do not make a whole tensor")


def _digest(values: dict[str, Any]) -> str:
    return xxhash.xxh3_128(json.dumps(values, sort_keys=True).encode()).hexdigest()
