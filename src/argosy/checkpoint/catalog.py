"""What lies in a folder of checkpoints, as its manifests say. No torch here, and nothing is read but manifests."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from argosy.checkpoint.folders import damaged_folders, saved_steps, step_folder
from argosy.checkpoint.manifest import FILE_NAME, Manifest, Unreadable, read_manifest
from argosy.errors import InputError

State = Literal["verified", "written", "damaged", "unreadable", "set aside"]


@dataclass(frozen=True)
class Entry:
    """One checkpoint.

    Attributes:
        state: verified: every byte was read back once; written: not yet; damaged: its manifest is; unreadable: of
            another version, or without permission; set aside: a load found it damaged.
        loss: of the newest evaluation when it was saved.
        why: what is wrong.
    """

    name: str
    step: int | None
    state: State
    manifest: Manifest | None = None
    why: str = ""

    @property
    def loss(self) -> float | None:
        losses = self.manifest.training.get("eval_losses") if self.manifest is not None else None
        return losses[-1] if losses and not math.isnan(losses[-1]) else None


def checkpoints_in(path: Path) -> tuple[Path, int | None]:
    """The folder of checkpoints that `path` means, and the step if it names one.

    `path` is a run, an imported model, a folder of checkpoints, or one checkpoint. Raises InputError for anything else.
    """
    if (path / FILE_NAME).exists() or (path.name.startswith("step-") and path.is_dir()):
        name = path.absolute().name.removeprefix("step-")
        if not name.isdecimal() or step_folder(path.absolute().parent, int(name)).name != path.absolute().name:
            raise InputError("is a checkpoint under another name", where=str(path), do="rename it to step-S")
        return path.absolute().parent, int(name)
    for folder in (path / "checkpoints", path):
        if saved_steps(folder) or damaged_folders(folder):
            return folder, None
    if not path.exists():
        raise InputError("no such folder", where=str(path), do="name a run, a folder of checkpoints or a checkpoint")
    inside = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    have = f"there are: {', '.join(inside[:8])}{' …' * (len(inside) > 8)}" if inside else "it is empty"
    raise InputError(
        f"holds no checkpoint; {have if path.is_dir() else 'it is a file'}",
        where=str(path),
        do="name a run, a folder of checkpoints or a checkpoint",
    )


def catalog(path: Path) -> list[Entry]:
    """The checkpoints that `path` means, newest first, and after them those that were set aside."""
    checkpoints, only = checkpoints_in(path)
    steps = saved_steps(checkpoints) if only is None else [only]
    aside = damaged_folders(checkpoints) if only is None else []
    return [_entry(checkpoints, step) for step in steps] + [Entry(name, None, "set aside") for name in aside]


def _entry(checkpoints: Path, step: int) -> Entry:
    folder = step_folder(checkpoints, step)
    try:
        manifest = read_manifest(folder)
    except Unreadable as error:
        return Entry(folder.name, step, "unreadable", why=error.what)
    except InputError as error:
        return Entry(folder.name, step, "damaged", why=error.what)
    return Entry(folder.name, step, "written" if manifest.verified_wall_s is None else "verified", manifest)
