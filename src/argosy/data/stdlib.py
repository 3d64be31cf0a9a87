"""The default corpus: the source of the Python standard library that runs this program.

About 11 to 12 MB of real text on every machine, without a download.
"""

import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import xxhash

from argosy.data.corpus import Document
from argosy.errors import InputError

SKIPPED_FOLDERS = {"idlelib", "site-packages", "dist-packages", "__pycache__"}
MACHINE_PREFIXES = ("_sysconfigdata", "config-", "sitecustomize")
"""Written when Python was built or packaged: they differ from machine to machine."""

FEWEST_BYTES = 4_000_000


@dataclass(frozen=True)
class StandardLibrary:
    """``*.py`` under the standard library's folder, in sorted order, without tests.

    A file's name decides whether it is held out, so that every Python version holds out the same modules.

    Raises (when read):
        InputError: the folder has hardly any source, as in distributions that ship it compiled or zipped.
    """

    root: Path
    name: str = "stdlib"

    @classmethod
    def of_this_python(cls) -> "StandardLibrary":
        return cls(Path(sysconfig.get_path("stdlib")))

    def __iter__(self) -> Iterator[Document]:
        for path, content in self._files:
            yield Document(path, content.decode("utf-8"), path.encode())

    @cached_property
    def digest(self) -> str:
        """xxh3_128 of names and contents."""
        state = xxhash.xxh3_128()
        for path, content in self._files:
            state.update(f"{len(path.encode())} {len(content)} {path}".encode())
            state.update(content)
        return state.hexdigest()

    @cached_property
    def _files(self) -> list[tuple[str, bytes]]:
        files = [(path, (self.root / path).read_bytes()) for path in sorted(self._paths())]
        files = [(path, content) for path, content in files if content and _is_utf8(content)]
        found = sum(len(content) for _, content in files)
        if found < FEWEST_BYTES:
            raise InputError(
                f"only {found / 1e6:.1f} MB of Python source; this Python ships its library compiled or zipped",
                where=str(self.root),
                do="use a Python that ships the source (python.org, pyenv, uv), or `argosy data build` other text",
            )
        return files

    def _paths(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS and not _is_skipped(name)]
            for name in names:
                if name.endswith(".py") and not _is_skipped(name):
                    yield (Path(folder) / name).relative_to(self.root).as_posix()


def _is_skipped(name: str) -> bool:
    return name.startswith(("test", *MACHINE_PREFIXES))


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False  # a few files of some versions declare another encoding
    return True
