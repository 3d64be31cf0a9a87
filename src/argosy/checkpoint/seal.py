"""Digests beside a checkpoint of any trainer: a plain folder of DCP or safetensors becomes one whose damage shows.

No torch here, and nothing of the sealed files is executed.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash
from safetensors import SafetensorError, safe_open

from argosy.checkpoint.dcp_index import read_index
from argosy.checkpoint.files import BLOCK_BYTES, opened, pass_over, write_whole
from argosy.checkpoint.manifest import FILE_NAME as MANIFEST
from argosy.checkpoint.shards import FileDigest
from argosy.checkpoint.verify import Damage
from argosy.errors import InputError, UsageError

FILE_NAME = "argosy-seal.json"
SCHEMA = "argosy.seal/1"


@dataclass(frozen=True)
class Sealed:
    """Digests of a folder's files by their paths in it."""

    folder: Path
    kind: str
    files: dict[str, FileDigest]
    bytes: int


def seal(folder: Path) -> Sealed:
    """Write the digests of all files in `folder` and below beside them; nothing else is changed.

    Raises UsageError for a folder that says of itself what is in it or is sealed, InputError for one that is
    no checkpoint, or one that is incomplete already: of what it names, something is missing or too short.
    """
    if (folder / MANIFEST).exists():
        raise UsageError("is a checkpoint of Argosy and has digests already", where=str(folder))
    if (folder / FILE_NAME).exists():
        raise UsageError("is sealed already", where=str(folder), do=f"remove {FILE_NAME} to seal what is there now")
    names = sorted(_files(folder))
    kind = _kind(folder, names)
    files = {name: digest_file(folder / name) for name in names}
    try:
        plain = {name: asdict(file) for name, file in files.items()}
        values: dict[str, Any] = {"schema": SCHEMA, "kind": kind, "files": plain}
        values["xxh3_128"] = _digest(values)
        write_whole(folder / FILE_NAME, json.dumps(values, indent=1).encode())
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(folder / FILE_NAME)) from error
    return Sealed(folder, kind, files, sum(file.bytes for file in files.values()))


def read_seal(folder: Path) -> Sealed:
    """Raises InputError when the seal is missing or damaged."""
    where = folder / FILE_NAME
    try:
        values = json.loads(where.read_bytes())
        if values.pop("xxh3_128") != _digest(values):
            raise InputError("damaged seal", where=str(where))
        if values["schema"] != SCHEMA:
            raise InputError(f"seal of version {values['schema']!r}, this Argosy reads {SCHEMA!r}", where=str(where))
        files = {str(name): FileDigest(**file) for name, file in values["files"].items()}
    except OSError as error:
        raise InputError(f"no readable seal ({error.strerror})", where=str(where)) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError("damaged seal", where=str(where)) from error
    return Sealed(folder, str(values["kind"]), files, sum(file.bytes for file in files.values()))


def broken_files(sealed: Sealed) -> list[Damage]:
    """Files that are missing, cannot be read or differ from the seal."""
    damage = []
    for name, expected in sealed.files.items():
        try:
            found = digest_file(sealed.folder / name)
        except InputError as error:
            damage.append(Damage(name, error.what))
            continue
        if found.bytes != expected.bytes:
            damage.append(Damage(name, f"{found.bytes} bytes instead of {expected.bytes}"))
        elif found != expected:
            damage.append(Damage(name, "its bytes differ"))
    return damage


def unsealed_files(sealed: Sealed) -> list[str]:
    """Files that came later."""
    return sorted(set(_files(sealed.folder)) - {*sealed.files, FILE_NAME})


def digest_file(path: Path) -> FileDigest:
    """Raises InputError when it cannot be read."""
    digest = xxhash.xxh3_128()
    try:
        with opened(path) as descriptor:
            size = os.fstat(descriptor).st_size
            pass_over(descriptor, 0, size, memoryview(bytearray(BLOCK_BYTES)), digest)
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(path)) from error
    return FileDigest(size, digest.hexdigest())


def _files(folder: Path) -> Iterator[str]:
    """All files below `folder`; links to folders are not followed, so that a loop of them is none."""
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder))
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield str((Path(place) / name).relative_to(folder))


def _kind(folder: Path, names: list[str]) -> str:
    """What the folder is, after a look whether all is there that it names."""
    if ".metadata" in names:
        sizes = {name: (folder / name).stat().st_size for name in names}
        for file, needed in read_index(folder / ".metadata").items():
            if sizes.get(file, -1) < needed:
                what = "is missing" if file not in sizes else f"has {sizes[file]} bytes, .metadata names {needed}"
                raise InputError(f"is incomplete already: {file} {what}", where=str(folder))
        return "dcp"
    tensors = [name for name in names if name.endswith(".safetensors")]
    for name in tensors:
        try:
            with safe_open(folder / name, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            raise InputError(f"is damaged already: {error}", where=str(folder / name)) from error
    if tensors:
        return "safetensors"
    raise InputError(
        f"is no checkpoint: neither a .metadata of DCP nor safetensors among its {len(names)} files",
        where=str(folder),
        do="name the folder that the trainer wrote",
    )


def _digest(values: dict[str, Any]) -> str:
    return xxhash.xxh3_128(json.dumps(values, sort_keys=True).encode()).hexdigest()
