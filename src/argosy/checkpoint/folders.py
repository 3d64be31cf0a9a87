"""Where checkpoints lie. No torch here, so that a launcher can look."""

import re
from pathlib import Path

_STEP_FOLDER = re.compile(r"step-(0|[1-9][0-9]*)")


def step_folder(checkpoints: Path, step: int) -> Path:
    return checkpoints / f"step-{step}"


def saved_steps(checkpoints: Path) -> list[int]:
    """Steps that have a folder, newest first. Other names, also ``step-007``, belong to somebody else."""
    if not checkpoints.is_dir():
        return []
    names = (_STEP_FOLDER.fullmatch(entry.name) for entry in checkpoints.iterdir() if entry.is_dir())
    return sorted((int(name[1]) for name in names if name), reverse=True)
