"""The manifest of a checkpoint: plain data that says what the folder holds and proves that it is whole.

It is written last, before the folder gets its final name, so a folder named ``step-S`` without a readable
manifest is damaged, not young. It carries a digest of itself and of every other file: no flipped bit goes unnoticed.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from argosy.errors import InputError

SCHEMA = "argosy.checkpoint/1"
FILE_NAME = "manifest.json"
_OWN_DIGEST = "xxh3_128"
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class FileDigest:
    bytes: int
    xxh3_128: str


@dataclass(frozen=True)
class Manifest:
    """`training` is the loop's own state as plain data; `files` lists every other file of the folder."""

    run_id: str
    step: int
    generation: int
    world_size: int
    layout: dict[str, Any]
    learning_hash: str
    data_digest: str
    code_version: str
    created_wall_s: float
    training: dict[str, Any]
    files: dict[str, FileDigest]
    vocabulary_digest: str = ""
    """Which id stands for which token; empty where nobody knows."""
    schema: str = SCHEMA

    def to_json(self) -> str:
        values = asdict(self)
        return json.dumps(values | {_OWN_DIGEST: _digest(values)}, indent=1)


def read_manifest(folder: Path) -> Manifest:
    """Raises InputError when the manifest is missing, damaged, of another step or of a newer version."""
    path = folder / FILE_NAME
    try:
        values = json.loads(path.read_bytes())
        if values["schema"] != SCHEMA:
            raise InputError(
                f"checkpoint of version {values['schema']!r}, this Argosy reads {SCHEMA!r}", where=str(path)
            )
        if values.pop(_OWN_DIGEST) != _digest(values):
            raise InputError("damaged manifest", where=str(path))
        # Its digest proves it whole: keys that this version does not know are a later version's, not damage.
        known = {key: value for key, value in values.items() if key in Manifest.__dataclass_fields__}
        manifest = Manifest(**known | {"files": {name: FileDigest(**file) for name, file in values["files"].items()}})
    except OSError as error:
        raise InputError(f"no readable manifest ({error.strerror})", where=str(path)) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError("damaged manifest", where=str(path)) from error
    if folder.name != f"step-{manifest.step}":
        raise InputError(f"manifest of step {manifest.step} in a folder of another name", where=str(path))
    return manifest


def _digest(values: dict[str, Any]) -> str:
    return xxhash.xxh3_128(json.dumps(values, sort_keys=True).encode()).hexdigest()


def digest_file(path: Path) -> FileDigest:
    digest, size = xxhash.xxh3_128(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return FileDigest(size, digest.hexdigest())


def damaged_files(folder: Path, manifest: Manifest) -> list[str]:
    """Names of files that are missing, cannot be read or differ from the manifest."""
    return [name for name, expected in manifest.files.items() if not _is_whole(folder / name, expected)]


def _is_whole(path: Path, expected: FileDigest) -> bool:
    try:
        return digest_file(path) == expected
    except OSError:
        return False
