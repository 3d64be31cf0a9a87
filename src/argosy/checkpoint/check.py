"""Verify whatever has digests: checkpoints of Argosy, and sealed folders of others. No torch here."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from argosy.checkpoint.catalog import checkpoints_in
from argosy.checkpoint.folders import saved_steps, step_folder
from argosy.checkpoint.manifest import FILE_NAME, Unreadable, read_manifest
from argosy.checkpoint.seal import FILE_NAME as SEAL
from argosy.checkpoint.seal import broken_files, read_seal, unsealed_files
from argosy.checkpoint.verify import Damage, find_damage
from argosy.errors import InputError


@dataclass(frozen=True)
class Verdict:
    """On one checkpoint; `note` is worth saying and no damage."""

    name: str
    bytes: int = 0
    damage: list[Damage] = field(default_factory=list)
    note: str = ""


def verify_all(path: Path) -> Iterator[Verdict]:
    """One verdict after the other for the checkpoints that `path` means, newest first.

    Raises InputError when there is none, or one that cannot be judged (of another version, without permission).
    """
    if (path / SEAL).exists():
        yield _sealed(path)
        return
    checkpoints, only = checkpoints_in(path)
    for step in saved_steps(checkpoints) if only is None else [only]:
        yield _checkpoint(step_folder(checkpoints, step))


def _checkpoint(folder: Path) -> Verdict:
    try:
        manifest = read_manifest(folder)
    except Unreadable:
        raise
    except InputError as error:
        return Verdict(folder.name, damage=[Damage(FILE_NAME, error.what)])
    return Verdict(folder.name, manifest.bytes, find_damage(folder, manifest))


def _sealed(folder: Path) -> Verdict:
    sealed = read_seal(folder)
    later = unsealed_files(sealed)
    note = f"; not in the seal: {', '.join(later[:3])}{' …' * (len(later) > 3)}" if later else ""
    return Verdict(folder.name, sealed.bytes, broken_files(sealed), note)
