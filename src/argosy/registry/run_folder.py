"""A run on storage: its identity, its lock, its attempts, and where each file of it lies.

The layout of the folder is fixed in INTERFACES 3. This module creates and finds; what is inside the
files belongs to the packages that write them. Files that this version does not know are left alone.
"""

import fcntl
import json
import os
import platform
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from argosy import __version__
from argosy.errors import ArgosyError, InputError, UsageError
from argosy.hardware.machine import this_machine
from argosy.recipe.hashes import changed_fields, hashes
from argosy.recipe.load import dump_toml, load_recipe
from argosy.recipe.schema import Recipe

SCHEMA = 1


class Locked(ArgosyError):
    """Another process holds the run; it may be gone in a moment, so this is no wrong input."""

    exit_code = UsageError.exit_code


@dataclass(frozen=True)
class RunInfo:
    """`run.json`: what a run is, written once when it is created."""

    id: str
    name: str
    recipe_hash: str
    learning_hash: str
    running_hash: str
    created_wall_ns: int
    """Nanoseconds since the epoch; the start of `budget.deadline_s`."""
    parent: str | None = None
    """`RUN@STEP` that this run took weights from."""
    code: str = __version__
    environment: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA


class RunFolder:
    """One run's folder. Construct with :meth:`create`, :meth:`open` or :meth:`create_or_continue`."""

    def __init__(self, path: Path):
        self.path = Path(path)

    # -- making and finding ------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, recipe: Recipe, *, parent: str | None = None) -> "RunFolder":
        """Make the folder of a new run.

        The identity file comes last and by rename, so a folder with `run.json` is whole. Raises UsageError when
        there is a run already, InputError when the place cannot be written.
        """
        run = cls(path)
        if (run.path / "run.json").exists():
            raise UsageError("holds a run already", where=str(path), do="name another folder")
        try:
            for folder in ("events", "heartbeat", "control", "checkpoints", "incidents"):
                (run.path / folder).mkdir(parents=True, exist_ok=True)
            marks = hashes(recipe)
            info = RunInfo(
                id=f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}",
                name=recipe.run.name,
                recipe_hash=marks.recipe_hash,
                learning_hash=marks.learning_hash,
                running_hash=marks.running_hash,
                created_wall_ns=time.time_ns(),
                parent=parent,
                environment=environment(),
            )
            _write_whole(run.recipe_file, dump_toml(recipe))
            _write_whole(run.path / "run.json", json.dumps(asdict(info), indent=2) + "\n")
        except OSError as error:
            raise _unwritable(path, error) from None
        return run

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The run in `path`. Raises InputError when there is none or `run.json` is damaged."""
        run = cls(path)
        run.info  # noqa: B018  reading it is the check
        return run

    @classmethod
    def create_or_continue(cls, path: Path, recipe: Recipe) -> "RunFolder":
        """A new run in `path`, or the one that is there if `recipe` learns the same thing.

        How it runs and what it costs may change: the resolved recipe is replaced by the new one. Raises UsageError
        naming the fields when what is learned would change.
        """
        if not (Path(path) / "run.json").exists():
            return cls.create(path, recipe)
        run = cls.open(path)
        run.continue_with(recipe)
        return run

    def continue_with(self, recipe: Recipe) -> None:
        """Take `recipe` for the next attempt; see :meth:`create_or_continue` for the rule."""
        was = self.recipe()
        # fields, not hashes, are compared: a hash would also differ because a later version has more fields
        if fields := changed_fields(was, recipe, {"learn"}):
            raise UsageError(
                f"this run learns something else: {', '.join(fields)} differ",
                where=str(self.path),
                do="put them back, or start a new run in another --run-dir",
            )
        if was != recipe:
            try:
                _write_whole(self.recipe_file, dump_toml(recipe))
            except OSError as error:
                raise _unwritable(self.path, error) from None

    # -- identity ----------------------------------------------------------------------------------

    @property
    def info(self) -> RunInfo:
        """The content of `run.json`. Keys that this version does not know are ignored."""
        file = self.path / "run.json"
        try:
            content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return RunInfo(**{k: v for k, v in content.items() if k in RunInfo.__dataclass_fields__})
        except FileNotFoundError:
            raise InputError("is no run folder: it has no run.json", where=str(self.path)) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from None
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"is damaged: {error}", where=str(file)) from None

    def recipe(self) -> Recipe:
        """The resolved recipe of the newest attempt."""
        return load_recipe(self.recipe_file)

    # -- lock and attempts -------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run against other launchers; raises :class:`Locked` with the holder's pid and host.

        The lock is the kernel's (flock): it ends with the process, however that dies. It is not inherited by
        programs that the holder starts.
        """
        try:
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
                raise Locked(
                    f"is being trained by {holder}", where=str(self.path), do="wait for it, or `argosy stop` it"
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            try:
                yield
            finally:
                # said, not only closed: a child between fork and exec still has the file open
                fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            os.close(handle)

    def claim_attempt(self) -> int:
        """Make the next attempt's folder and return its number (from 1). Two callers never get the same one."""
        number = max(self.attempts(), default=0)
        while True:
            number += 1
            try:
                (self.events / f"attempt-{number}").mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise _unwritable(self.path, error) from None
            return number

    def attempts(self) -> list[int]:
        """Numbers of the attempts so far, in order."""
        names = [p.name.removeprefix("attempt-") for p in self.events.glob("attempt-*") if p.is_dir()]
        return sorted(int(name) for name in names if name.isdecimal())

    # -- where things lie --------------------------------------------------------------------------

    @property
    def recipe_file(self) -> Path:
        """The resolved recipe."""
        return self.path / "recipe.toml"

    @property
    def events(self) -> Path:
        """Folder of the journal, one sub-folder per attempt."""
        return self.path / "events"

    @property
    def checkpoints(self) -> Path:
        """Folder of `step-S` folders."""
        return self.path / "checkpoints"

    @property
    def control(self) -> Path:
        """Folder where `stop`, `save` and `deadline` files ask the run for something."""
        return self.path / "control"

    @property
    def incidents(self) -> Path:
        """Folder of one record per fault."""
        return self.path / "incidents"

    @property
    def paid_file(self) -> Path:
        """Intervals in which devices were paid."""
        return self.path / "paid.jsonl"

    @property
    def price_file(self) -> Path:
        """Prices over time."""
        return self.path / "price.jsonl"

    @property
    def decisions_file(self) -> Path:
        """What people and policies decided about the run."""
        return self.path / "decisions.jsonl"

    def attempt_folder(self, attempt: int) -> Path:
        """Folder of one attempt's journal."""
        return self.events / f"attempt-{attempt}"

    def rank_file(self, attempt: int, rank: int) -> Path:
        """Journal of one rank in one attempt."""
        return self.attempt_folder(attempt) / f"rank-{rank}.jsonl"

    def agent_file(self, attempt: int, host: str) -> Path:
        """Journal of the launcher or agent on `host` in one attempt."""
        return self.attempt_folder(attempt) / f"agent-{host}.jsonl"

    def heartbeat_file(self, attempt: int, rank: int) -> Path:
        """Heartbeat page of one rank in one attempt."""
        return self.path / "heartbeat" / f"attempt-{attempt}-rank-{rank}"

    def plan_file(self, attempt: int) -> Path:
        """The plan that one attempt followed."""
        return self.path / f"plan-{attempt}.json"


def find_runs(root: Path) -> list[RunFolder]:
    """The runs directly inside `root`, oldest first; folders that are no runs, or cannot be read, are passed over."""
    found = []
    for file in Path(root).glob("*/run.json"):
        try:
            run = RunFolder.open(file.parent)
        except InputError:
            continue
        found.append((run.info.created_wall_ns, str(run.path), run))
    return [run for _, _, run in sorted(found, key=lambda item: item[:2])]


def environment() -> dict[str, str]:
    """Where and by what this process trains: what decides the last bits of a run, and what tells it from others."""
    return {
        "python": platform.python_version(),
        "torch": _version("torch"),
        "platform": platform.platform(),
        "machine": str(this_machine()),
        "host": socket.gethostname(),
        "command": " ".join(sys.argv[:6])[:300],
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)  # without importing it
    except metadata.PackageNotFoundError:
        return "unknown"


def _write_whole(file: Path, text: str) -> None:
    """Replace `file` so that a reader sees the old or the new text, also after a power cut."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _unwritable(path: Path, error: OSError) -> InputError:
    reason = (error.strerror or str(error)).lower()
    return InputError(f"cannot be written: {reason}", where=str(path), do="give a --run-dir that you may write")
