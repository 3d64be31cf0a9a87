"""Written is not yet safe: read a checkpoint back from the device before anything relies on it. No torch here."""

import time
from dataclasses import replace
from pathlib import Path

from argosy.checkpoint.commit import set_aside
from argosy.checkpoint.fence import fenced
from argosy.checkpoint.files import write_whole
from argosy.checkpoint.folders import step_folder
from argosy.checkpoint.manifest import FILE_NAME, Manifest, read_manifest
from argosy.checkpoint.verify import find_damage
from argosy.errors import InputError


def confirm(checkpoints: Path, step: int, generation: int) -> None:
    """Read every byte of the checkpoint of `step` from the device, and note in its manifest that it was right.

    Raises InputError when it was not, after the checkpoint was set aside; Fenced when a newer attempt has taken over.
    """
    folder = step_folder(checkpoints, step)
    manifest = read_manifest(folder)
    if damage := find_damage(folder, manifest, from_device=True):
        aside = set_aside(checkpoints, step, generation)
        raise InputError(
            f"was damaged when it was read back: {', '.join(map(str, damage))}",
            where=str(folder),
            do=f"look at {aside.name} and at the device",
        )
    mark_verified(checkpoints, manifest, generation)


def mark_verified(checkpoints: Path, manifest: Manifest, generation: int) -> None:
    """Note that every byte of a checkpoint was found right. Raises Fenced when a newer attempt has taken over."""
    folder = step_folder(checkpoints, manifest.step)
    with fenced(checkpoints, generation):
        if read_manifest(folder) == manifest:  # else another attempt has written this step again
            marked = replace(manifest, verified_wall_s=time.time())
            write_whole(folder / FILE_NAME, marked.to_json().encode())
