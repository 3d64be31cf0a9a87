"""The files of a source, on this machine or behind any address that fsspec knows."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import fsspec

from argosy.data.files import digest_json, os_errors_explained
from argosy.errors import InputError, UsageError

COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True)
class SourceFile:
    """One file.

    Attributes:
        name: its path below the source, as records and errors show it.
        stamp: what changes when the file does: size and time or tag.
    """

    system: Any
    path: str
    name: str
    size: int
    stamp: str

    @property
    def suffix(self) -> str:
        """The suffix that says the format, in lower case, without that of a compression."""
        name = PurePosixPath(self.name.lower())
        return PurePosixPath(name.stem).suffix if name.suffix in COMPRESSED else name.suffix

    @property
    def compressed(self) -> bool:
        return self.name.lower().endswith(COMPRESSED)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Read it, unpacked.

        Raises:
            InputError: it may not be read, or is no archive of its kind.
        """
        with os_errors_explained(Path(self.path)), self.system.open(self.path, "rb") as file:
            try:
                yield _unpacked(cast(BinaryIO, file), self.name.lower())
            except (gzip.BadGzipFile, zlib.error, EOFError) as error:
                raise InputError(f"is damaged ({error})", where=self.path, do="copy the file again") from error
            except OSError as error:
                if error.errno is not None:  # the system's, not the unpacker's
                    raise
                raise InputError(f"is damaged ({error})", where=self.path, do="copy the file again") from error


def files_of(source: str | Path) -> list[SourceFile]:
    """A file, or all files of a folder in sorted order (names that begin with a dot are left out).

    Raises:
        InputError: there is no such file or folder, or its address is not understood.
    """
    address = str(source)
    try:
        system, root = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError) as error:
        raise InputError(
            f"cannot be reached: {error}", where=address, do="give a path, or install the package"
        ) from None
    with os_errors_explained(Path(root)):
        if not system.exists(root):
            raise InputError(
                "no such file or folder", where=address, do="give a file or a folder of text, JSONL or tables"
            )
        if system.isfile(root):
            return [_file(system, root, PurePosixPath(root).name, system.info(root))]
        found = system.find(root, detail=True)
    base = PurePosixPath(root)
    named = {str(PurePosixPath(path).relative_to(base)): (path, info) for path, info in found.items()}
    visible = [name for name in named if not any(part.startswith(".") for part in PurePosixPath(name).parts)]
    # By folder: the order in which a walk of the folders, each one's own files first, would find them.
    visible.sort(key=lambda name: (PurePosixPath(name).parent.parts, PurePosixPath(name).name))
    return [_file(system, *named[name][:1], name, named[name][1]) for name in visible]


def fingerprint(files: list[SourceFile]) -> str:
    """Changes when any of the files does."""
    return digest_json([[file.name, file.size, file.stamp] for file in files])


def _file(system: Any, path: str, name: str, info: dict[str, Any]) -> SourceFile:
    stamp = next((str(info[key]) for key in ("mtime", "ETag", "etag", "LastModified") if info.get(key)), "")
    return SourceFile(system, path, name, int(info["size"] or 0), stamp)


def _unpacked(file: BinaryIO, name: str) -> BinaryIO:
    if name.endswith(".gz"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if name.endswith(".zst"):
        stream = arrow(name).CompressedInputStream(file, "zstd")
        return cast(BinaryIO, io.BufferedReader(stream, 1 << 20))
    return file


def arrow(where: str) -> Any:
    """The package pyarrow. Raises UsageError where it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise UsageError("reading this needs pyarrow", where=where, do="pip install 'argosy[data]'") from None
    return pyarrow
