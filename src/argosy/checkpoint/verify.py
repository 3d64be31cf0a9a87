"""Compare files with their manifest, byte by byte, in bounded memory. No torch here."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from argosy.checkpoint.files import BLOCK_BYTES, opened, pass_over
from argosy.checkpoint.manifest import Manifest, not_permitted
from argosy.checkpoint.shards import FileDigest, Stored, begin_digest


@dataclass(frozen=True)
class Damage:
    """What is wrong with a file; `what` names the tensor or the system's error."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file} ({self.what})"


@dataclass(frozen=True)
class Share:
    """What one of several workers verifies: every `of`-th piece, from `number` on."""

    number: int = 0
    of: int = 1


def find_damage(folder: Path, manifest: Manifest, share: Share = Share(), from_device: bool = False) -> list[Damage]:
    """Files that are missing, cannot be read or differ from the manifest.

    With `from_device` the system forgets what it knows of the files, so that the device itself has to answer.
    Raises Unreadable where a file may not be read.
    """
    damage = []
    chunks = _by_file(manifest)
    for number, (name, digest) in enumerate(manifest.files.items()):
        mine = [one for place, one in enumerate(chunks[name], start=number + 1) if place % share.of == share.number]
        has_frame = number % share.of == share.number
        if not mine and not has_frame:
            continue
        try:
            with opened(folder / name) as descriptor:
                if from_device and hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                found = _differences(descriptor, digest, chunks[name], mine, has_frame)
                damage += [Damage(name, what) for what in found]
        except PermissionError as error:
            raise not_permitted(folder / name) from error
        except OSError as error:
            damage.append(Damage(name, error.strerror or str(error)))
    return damage


def _by_file(manifest: Manifest) -> dict[str, list[Stored]]:
    chunks: dict[str, list[Stored]] = defaultdict(list)
    for one in manifest.stored():
        chunks[one.file].append(one)
    for stored in chunks.values():
        stored.sort(key=lambda one: one.at)
    return chunks


def _differences(
    descriptor: int, digest: FileDigest, stored: list[Stored], mine: Iterable[Stored], has_frame: bool
) -> Iterator[str]:
    if (size := os.fstat(descriptor).st_size) != digest.bytes:
        yield f"{size} bytes instead of {digest.bytes}"
        return
    scratch = memoryview(bytearray(BLOCK_BYTES))
    if has_frame:
        frame, at = xxhash.xxh3_128(), 0
        for one in stored:
            pass_over(descriptor, at, one.at - at, scratch, frame)
            at = one.at + one.chunk.bytes
        pass_over(descriptor, at, digest.bytes - at, scratch, frame)
        if frame.hexdigest() != digest.xxh3_128:
            yield "its bytes differ"
    for one in mine:
        content = begin_digest(one.chunk)
        pass_over(descriptor, one.at, one.chunk.bytes, scratch, content)
        if content.hexdigest() != one.digest:
            yield f"{one.chunk.name} differs"
