"""Save a checkpoint: DCP's files under a temporary name, manifest last, then one rename.

A crash at any moment leaves either the old set of checkpoints or the old set and the new one. A failed save is
removed and reported on every rank with the first real cause; training may go on.
"""

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import SavePlanner
from torch.distributed.checkpoint.api import CheckpointException

from argosy.checkpoint.folders import step_folder
from argosy.checkpoint.manifest import FILE_NAME, FileDigest, Manifest, digest_file
from argosy.checkpoint.state import Tree
from argosy.errors import ArgosyError


class SaveError(ArgosyError):
    """A checkpoint that could not be written; earlier ones are untouched."""


def save(
    checkpoints: Path,
    tree: Tree,
    manifest: Manifest,
    group: dist.ProcessGroup | None,
    planner: SavePlanner | None = None,
) -> Path:
    """Write `tree` as ``step-S`` below `checkpoints`; collective over `group` (None for a single rank).

    `manifest.files` is filled in here. A `planner` may deliver tensors that `tree` only describes.
    Returns the final folder. Raises :class:`SaveError` on all ranks alike.
    """
    rank = dist.get_rank(group) if group is not None else 0
    final = step_folder(checkpoints, manifest.step)
    # The generation in the name keeps a late writer of an older attempt out of this one's way.
    draft = checkpoints / f".step-{manifest.step}.g{manifest.generation}.tmp"
    if rank == 0:
        _sweep(checkpoints)
    reports = _all_ranks(lambda: _write_shards(draft, tree, group, rank, planner), group)
    if not _errors(reports):
        digests = {name: digest for report in reports for name, digest in report[1].items()}
        reports = _all_ranks(lambda: _publish(draft, final, replace(manifest, files=digests), rank), group)
    if errors := _errors(reports):
        if rank == 0:
            shutil.rmtree(draft, ignore_errors=True)
        raise SaveError(
            f"checkpoint of step {manifest.step} not written: {errors[0]}",
            where=str(checkpoints),
            do="earlier checkpoints are kept; free space or mend the storage",
        )
    return final


def _write_shards(
    draft: Path, tree: Tree, group: dist.ProcessGroup | None, rank: int, planner: SavePlanner | None
) -> dict[str, FileDigest]:
    with warnings.catch_warnings():
        # DCP warns that a lone process saves without a process group, which is what is meant here.
        warnings.filterwarnings("ignore", category=UserWarning, module="torch.distributed.checkpoint")
        dcp.save(
            dict(tree),
            storage_writer=dcp.FileSystemWriter(draft, sync_files=True),
            planner=planner,
            process_group=group,
            no_dist=group is None,
        )
    mine = sorted(draft.glob(f"__{rank}_*"))
    if rank == 0:
        mine.append(draft / ".metadata")
    return {path.name: digest_file(path) for path in mine}


def _publish(draft: Path, final: Path, manifest: Manifest, rank: int) -> dict[str, FileDigest]:
    if rank == 0:
        with (draft / FILE_NAME).open("w") as file:
            file.write(manifest.to_json())
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(draft)
        if final.exists():  # damaged, or this step would not have been trained again
            _remove(final)
        draft.rename(final)
        _sync_folder(final.parent)
    return {}


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


Report = tuple[str | None, dict[str, FileDigest]]


def _all_ranks(work: Any, group: dist.ProcessGroup | None) -> list[Report]:
    """Run `work` on each rank and tell every rank how it went on all of them."""
    try:
        report: Report = (None, work())
    # Whatever failed, the others must learn of it instead of waiting. DCP's error is no Exception.
    except (Exception, CheckpointException) as error:
        report = (root_cause(error), {})
    if group is None:
        return [report]
    reports: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(reports, report, group=group)
    return reports


def _errors(reports: Sequence[Report]) -> list[str]:
    return [error for error, _ in reports if error]


def root_cause(error: BaseException) -> str:
    """The system error behind whatever DCP wrapped around it, else the innermost error; one line."""
    chain = _chain(error)
    for cause in chain:
        if isinstance(cause, OSError) and cause.strerror:
            return f"{cause.strerror} ({cause.filename})" if cause.filename else cause.strerror
    return f"{type(chain[-1]).__name__}: {chain[-1]}".splitlines()[0]


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    todo: list[BaseException] = [error]
    while todo:
        current = todo.pop()
        if current in chain:
            continue
        chain.append(current)
        # CheckpointException keeps each rank's error as (exception, traceback summary).
        todo.extend(failure[0] for failure in getattr(current, "failures", {}).values())
        todo.extend(cause for cause in (current.__cause__, current.__context__) if cause is not None)
    return chain


def delete(checkpoints: Path, steps: Iterable[int]) -> None:
    """Delete the checkpoints of `steps`. Nothing else is touched, and what cannot be deleted stays."""
    for step in steps:
        _remove(step_folder(checkpoints, step))


def _remove(folder: Path) -> None:
    """Take its name from a checkpoint before its files: a kill in between must not leave half of one."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}.old.tmp")))


def _sweep(checkpoints: Path) -> None:
    """Remove drafts and half-deleted checkpoints that killed attempts left: they take room that this save may need."""
    for left in checkpoints.glob(".step-*.tmp"):
        shutil.rmtree(left, ignore_errors=True)
