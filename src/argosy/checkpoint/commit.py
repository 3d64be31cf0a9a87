"""Turn written files into a checkpoint: manifest last, then one rename. No torch and no process group needed here.

A crash at any moment leaves either the old set of checkpoints or the old set and the new one.
"""

import contextlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import xxhash

from argosy.checkpoint.fence import fenced
from argosy.checkpoint.files import sync, write_file, write_whole
from argosy.checkpoint.folders import damaged_folder, draft_folder, leftovers, retired_folder, step_folder
from argosy.checkpoint.manifest import FILE_NAME, Manifest, by_tensor
from argosy.checkpoint.shards import FileDigest, RankFile

DCP_METADATA = ".metadata"


def begin_draft(checkpoints: Path, step: int, generation: int) -> Path:
    """The folder to write files into. Each writer may call it; what killed attempts left is removed, for its room."""
    draft = draft_folder(checkpoints, step, generation)
    for left in leftovers(checkpoints, draft):
        shutil.rmtree(left, ignore_errors=True)
    draft.mkdir(parents=True, exist_ok=True)
    return draft


def commit(checkpoints: Path, manifest: Manifest, files: Sequence[RankFile], dcp_metadata: bytes) -> Path:
    """Give the draft of `manifest.step` its name, once all `files` are on the device; returns the new folder.

    `files` are those of all ranks, as their writers returned them. Raises Fenced when a newer attempt has taken over,
    OSError as the system says it.
    """
    final = step_folder(checkpoints, manifest.step)
    draft = draft_folder(checkpoints, manifest.step, manifest.generation)
    with fenced(checkpoints, manifest.generation):
        write_file(draft / DCP_METADATA, dcp_metadata)
        digests = {file.name: file.digest for file in files}
        digests[DCP_METADATA] = FileDigest(len(dcp_metadata), xxhash.xxh3_128(dcp_metadata).hexdigest())
        _keep_only(draft, digests)
        tensors = by_tensor(one for file in files for one in file.stored)
        write_whole(draft / FILE_NAME, replace(manifest, files=digests, tensors=tensors).to_json().encode())
        replaced = retire(checkpoints, manifest.step) if final.exists() else None
        draft.rename(final)
        try:
            sync(checkpoints)
        except OSError:  # nobody knows whether a crash would leave the new name: it is no commit
            final.rename(draft)
            if replaced is not None:
                replaced.rename(final)
            raise
    if replaced is not None:
        shutil.rmtree(replaced, ignore_errors=True)
    return final


def abandon(checkpoints: Path, step: int, generation: int) -> None:
    """Give back the room of a save that failed."""
    shutil.rmtree(draft_folder(checkpoints, step, generation), ignore_errors=True)


def delete(checkpoints: Path, steps: Iterable[int], generation: int) -> None:
    """Delete the checkpoints of `steps`. Nothing else is touched, and what cannot be deleted stays.

    Raises Fenced when a newer attempt has taken over.
    """
    with fenced(checkpoints, generation):
        for step in steps:
            with contextlib.suppress(OSError):
                shutil.rmtree(retire(checkpoints, step))


def set_aside(checkpoints: Path, step: int, generation: int) -> Path:
    """Give a damaged checkpoint another name, so that it is in nobody's way and still there; returns its new folder.

    Raises Fenced when a newer attempt has taken over, OSError as the system says it.
    """
    with fenced(checkpoints, generation):
        return step_folder(checkpoints, step).rename(damaged_folder(checkpoints, step))


def retire(checkpoints: Path, step: int) -> Path:
    """Take its name from a checkpoint before its files: a kill in between must not leave half of one."""
    retired = retired_folder(checkpoints, step)
    shutil.rmtree(retired, ignore_errors=True)
    return step_folder(checkpoints, step).rename(retired)


def _keep_only(draft: Path, files: dict[str, FileDigest]) -> None:
    """Files of the right size are there, and no others, as an earlier try in the same folder may have left."""
    for entry in draft.iterdir():
        if entry.name not in files:
            entry.unlink()
    for name, digest in files.items():
        if (size := (draft / name).stat().st_size) != digest.bytes:
            raise OSError(f"{name} has {size} bytes instead of {digest.bytes}")
