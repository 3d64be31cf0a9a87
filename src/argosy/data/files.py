"""Files that are whole or absent: build under another name, digest, fsync, rename."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from argosy.errors import InputError, StoppedError

DIGEST_BLOCK_BYTES = 1 << 22
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def digest_file(path: Path) -> str:
    """xxh3_128 of a file in hex: 28 GB/s on one core, against accidents rather than forgery."""
    state = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(DIGEST_BLOCK_BYTES):
            state.update(block)
    return state.hexdigest()


def digest_json(value: Any) -> str:
    """xxh3_128 of a JSON value, whatever the order of its keys."""
    return xxhash.xxh3_128(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def fsync(path: Path) -> None:
    """Flush a file or a folder's list of names to the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write a manifest so that a reader sees the old file or the whole new one."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    fsync(temporary)
    temporary.rename(path)
    fsync(path.parent)


def read_json(path: Path, schema: str) -> dict[str, Any]:
    """Read a manifest of the form ``schema`` (``name/version``).

    Raises:
        InputError: the file is missing, is no JSON, or is of another kind or a newer version.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError("no manifest here", where=str(path), do="make the folder with `argosy data build`") from None
    except (ValueError, OSError) as error:
        raise InputError(f"unreadable manifest ({error})", where=str(path), do="build the folder again") from error
    found = value.get("schema") if isinstance(value, dict) else None
    if found != schema:
        raise InputError(
            f"manifest has schema {found!r}, this Argosy reads {schema!r}",
            where=str(path),
            do="build the folder again with this version",
        )
    return value


@contextmanager
def os_errors_explained(where: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission into one line."""
    try:
        yield
    except OSError as error:
        place = str(error.filename or where)
        if error.errno in FULL:
            raise StoppedError(
                f"no space left ({error.strerror})", where=place, do="free space, start again"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise InputError(f"no permission ({error.strerror})", where=place, do="choose another folder") from error
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise InputError("this file system has no locks", where=place, do="choose a local folder") from error
        raise


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; calls ``waiting`` once when another process holds it.

    The file is removed at the end. A process that waited on the removed file must not take that for
    the lock, hence the comparison of inodes.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _names(path, descriptor):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        finally:
            os.close(descriptor)


def _names(path: Path, descriptor: int) -> bool:
    try:
        named, held = os.stat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


KEY = ".key"
"""In a folder under way: of what it is the beginning."""


def build_folder(out: Path, fill: Callable[[Path], None], say: Callable[[str], None], key: str | None = None) -> bool:
    """Let ``fill`` write a folder and give it its name ``out`` once it is whole.

    Safe against other processes that build the same folder (they wait and find it done) and against a kill at any
    moment. Returns whether this process did the work.

    Args:
        key: digest of all that determines the contents. A build of the same key that was killed, or found the disk
            full, is handed to ``fill`` to go on with; without a key the next build starts afresh.

    Raises:
        StoppedError: the disk is full; nothing is left behind but, with a key, what is to be gone on with.
        InputError: no permission.
    """
    temporary = out.with_name(f".{out.name}.building")
    with os_errors_explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = out.with_name(f".{out.name}.lock")
        with locked(lock, lambda: say(f"waiting for another process that builds {out}")):
            if out.exists() and any(out.iterdir()):
                return False
            if key is None or not _begun(temporary, key):
                shutil.rmtree(temporary, ignore_errors=True)  # left by a killed process
                temporary.mkdir()
                (temporary / KEY).write_text(key or "")
            try:
                fill(temporary)
                fsync(temporary)
                temporary.rename(out)
                (out / KEY).unlink()
                fsync(out.parent)
            except OSError as error:
                if key is None or error.errno not in FULL:
                    shutil.rmtree(temporary, ignore_errors=True)
                raise
            except KeyboardInterrupt:
                if key is None:
                    shutil.rmtree(temporary, ignore_errors=True)
                raise
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    return True


def _begun(folder: Path, key: str) -> bool:
    try:
        return (folder / KEY).read_text() == key
    except OSError:
        return False
