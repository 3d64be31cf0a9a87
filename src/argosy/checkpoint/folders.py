"""Where checkpoints lie. No torch here, so that a launcher can look."""

import re
from pathlib import Path

FENCE_FILE = ".generation"
_STEP_FOLDER = re.compile(r"step-(0|[1-9][0-9]*)")
_DRAFT = re.compile(r"\.step-([0-9]+)\.g([0-9]+)\.tmp")
_DAMAGED = re.compile(r"step-[0-9]+\.damaged(-[0-9]+)?")
_RETIRED = re.compile(r"\.step-[0-9]+\.old\.tmp")


def step_folder(checkpoints: Path, step: int) -> Path:
    return checkpoints / f"step-{step}"


def draft_folder(checkpoints: Path, step: int, generation: int) -> Path:
    """Where a checkpoint is written; the generation keeps a late writer of an older attempt out of this one's way."""
    return checkpoints / f".step-{step}.g{generation}.tmp"


def retired_folder(checkpoints: Path, step: int) -> Path:
    """Where a checkpoint's files wait for their deletion."""
    return checkpoints / f".step-{step}.old.tmp"


def saved_steps(checkpoints: Path) -> list[int]:
    """Steps that have a folder, newest first. Other names, also ``step-007``, belong to somebody else."""
    if not checkpoints.is_dir():
        return []
    names = (_STEP_FOLDER.fullmatch(entry.name) for entry in checkpoints.iterdir() if entry.is_dir())
    return sorted((int(name[1]) for name in names if name), reverse=True)


def damaged_folders(checkpoints: Path) -> list[str]:
    """Names of checkpoints that were set aside."""
    if not checkpoints.is_dir():
        return []
    return sorted(entry.name for entry in checkpoints.iterdir() if _DAMAGED.fullmatch(entry.name))


def damaged_folder(checkpoints: Path, step: int) -> Path:
    """A free name for a damaged checkpoint."""
    taken, name, number = damaged_folders(checkpoints), f"step-{step}.damaged", 1
    while name in taken:
        number += 1
        name = f"step-{step}.damaged-{number}"
    return checkpoints / name


def leftovers(checkpoints: Path, draft: Path) -> list[Path]:
    """What nobody will come back for once `draft` is begun: drafts of killed attempts and of saves that this one
    gave up, and half-deleted checkpoints. Drafts of newer attempts are theirs."""
    mine = _DRAFT.fullmatch(draft.name)
    assert mine is not None
    found = []
    for entry in checkpoints.iterdir() if checkpoints.is_dir() else ():
        other = _DRAFT.fullmatch(entry.name)
        if entry.name != draft.name and (_RETIRED.fullmatch(entry.name) or (other and int(other[2]) <= int(mine[2]))):
            found.append(entry)
    return found
