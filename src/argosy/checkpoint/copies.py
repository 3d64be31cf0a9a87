"""The third tier: checkpoints copied to any folder or URL that fsspec can write, and back. No torch here.

::

    TARGET/RUN-ID/step-S/…    the files of the checkpoint, its manifest last

Stores have no rename, so a copy without a readable manifest is none. What comes back is verified like any checkpoint.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec

from argosy.checkpoint.causes import root_cause
from argosy.checkpoint.commit import abandon, begin_draft
from argosy.checkpoint.fence import fenced
from argosy.checkpoint.files import sync
from argosy.checkpoint.folders import step_folder
from argosy.checkpoint.manifest import FILE_NAME, Manifest, parse_manifest, read_manifest
from argosy.checkpoint.verify import find_damage
from argosy.errors import ArgosyError, InputError


class CopyError(ArgosyError):
    """A checkpoint that could not be copied; the one here is untouched."""


class Copies:
    """The copies of one run at a target. Errors of the store are CopyError, with its own words."""

    def __init__(self, target: str, run_id: str):
        """Raises CopyError when fsspec does not know the kind of store, or lacks the package for it."""
        self.target = target
        try:
            self._fs, root = fsspec.url_to_fs(target)
        except (ValueError, ImportError) as error:
            raise CopyError(str(error), where=f"checkpoint.copy_to = {target!r}") from error
        self._home = f"{root.rstrip('/')}/{run_id}"

    def steps(self) -> list[int]:
        """Steps of whole copies, newest first."""
        with _in_its_words(self.target):
            if not self._fs.exists(self._home):
                return []
            names = (str(path).rstrip("/").rpartition("/")[2] for path in self._fs.ls(self._home, detail=False))
            steps = [int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdecimal()]
            return sorted((step for step in steps if self._manifest(step) is not None), reverse=True)

    def put(self, folder: Path, keep_last: int) -> None:
        """Copy the checkpoint in `folder`, every byte of it verified before, unless it is there already; then delete
        all copies but the newest `keep_last`.

        Raises InputError when the checkpoint is damaged.
        """
        manifest = read_manifest(folder)
        if damage := find_damage(folder, manifest):
            raise InputError(f"is not copied: {', '.join(map(str, damage))}", where=str(folder))
        there = self._manifest(manifest.step)
        if there is None or there.files != manifest.files:
            place = self._place(manifest.step)
            with _in_its_words(self.target):
                if self._fs.exists(place):
                    self._fs.rm(place, recursive=True)
                self._fs.makedirs(place, exist_ok=True)
                for name in (*manifest.files, FILE_NAME):
                    self._fs.put_file(str(folder / name), f"{place}/{name}")
        for step in self.steps()[max(keep_last, 1) :]:
            with _in_its_words(self.target):
                self._fs.rm(self._place(step), recursive=True)

    def fetch(self, checkpoints: Path, step: int, generation: int) -> Path:
        """Bring the copy of `step` back as a checkpoint here; it is for the reader to verify it.

        Raises Fenced when a newer attempt has taken over.
        """
        draft = begin_draft(checkpoints, step, generation)
        try:
            with _in_its_words(self.target):
                manifest = self._manifest(step)
                if manifest is None:
                    raise FileNotFoundError(f"{self._place(step)}/{FILE_NAME}")
                for name in (*manifest.files, FILE_NAME):
                    self._fs.get_file(f"{self._place(step)}/{name}", str(draft / name))
            with fenced(checkpoints, generation):
                final = step_folder(checkpoints, step)
                draft.rename(final)
                sync(checkpoints)
        finally:
            abandon(checkpoints, step, generation)
        return final

    def _place(self, step: int) -> str:
        return f"{self._home}/step-{step}"

    def _manifest(self, step: int) -> Manifest | None:
        """None where it is not there or damaged: then the copy was never finished."""
        path = f"{self._place(step)}/{FILE_NAME}"
        try:
            return parse_manifest(self._fs.cat_file(path), path)
        except (InputError, FileNotFoundError):
            return None


@contextmanager
def _in_its_words(target: str) -> Iterator[None]:
    """Whatever a store raises, as one line."""
    try:
        yield
    except ArgosyError:
        raise
    except Exception as error:
        raise CopyError(root_cause(error), where=target) from error
