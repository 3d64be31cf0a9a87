"""Find the newest whole checkpoint and load it into a program of any layout."""

import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from argosy.checkpoint.folders import saved_steps, step_folder
from argosy.checkpoint.manifest import Manifest, damaged_files, read_manifest
from argosy.checkpoint.save import root_cause
from argosy.checkpoint.state import Tree
from argosy.errors import InputError


def find(
    checkpoints: Path, step: int | None = None, say: Callable[[str], None] = print
) -> tuple[Path, Manifest] | None:
    """The newest whole checkpoint (or the one of `step`), each file checked against its digest.

    Returns None where there is none at all. Damaged ones are named through `say` and passed over; it is an
    InputError when nothing whole is left or when `step` is missing or damaged.
    """
    steps = saved_steps(checkpoints)
    if step is not None and step not in steps:
        have = ", ".join(str(s) for s in steps) or "none"
        raise InputError(f"no checkpoint of step {step}; there are: {have}", where=str(checkpoints))
    damage = []
    for candidate in steps if step is None else [step]:
        folder = step_folder(checkpoints, candidate)
        try:
            manifest = read_manifest(folder)
            if not (bad := damaged_files(folder, manifest)):
                return folder, manifest
            damage.append(f"{folder.name} is damaged ({', '.join(bad)})")
        except InputError as error:
            damage.append(str(error))
        say(damage[-1])
    if damage:
        raise InputError(
            f"no whole checkpoint is left: {'; '.join(damage)}",
            where=str(checkpoints),
            do="restore the files, or remove the damaged folders to start from scratch",
        )
    return None


def find_on_all_ranks(checkpoints: Path, group: dist.ProcessGroup | None) -> tuple[Path, Manifest] | None:
    """Rank 0 looks and checks; all ranks get the same answer, or the same error."""
    if group is None:
        return find(checkpoints)
    answer: list = [None]
    if dist.get_rank(group) == 0:
        try:
            answer = [find(checkpoints)]
        except InputError as error:
            answer = [error]
    dist.broadcast_object_list(answer, group=group, group_src=0)
    if isinstance(answer[0], InputError):
        raise answer[0]
    return answer[0]


def load(folder: Path, tree: Tree, group: dist.ProcessGroup | None) -> None:
    """Fill the tensors of `tree` in place from the checkpoint in `folder`, whatever layout wrote it.

    Raises InputError on all ranks alike when `folder` lacks a tensor of `tree` or has it in another shape.
    """
    reader = dcp.FileSystemReader(folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="torch.distributed.checkpoint")
        try:
            dcp.load(dict(tree), storage_reader=reader, process_group=group, no_dist=group is None)
        except CheckpointException as error:  # which is no Exception
            raise InputError(f"cannot be loaded: {root_cause(error)}", where=str(folder)) from error


def restore_rng(tree: Tree, rank: int) -> None:
    """Set this rank's random state from a loaded tree."""
    torch.set_rng_state(tree["rng"][f"rank-{rank}"])
