"""Text and JSONL files as a corpus."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from argosy.data.corpus import Document, Rejected
from argosy.data.files import os_errors_explained
from argosy.errors import InputError

JSONL_SUFFIXES = {".jsonl", ".ndjson"}
LONG_FILE_BYTES = 1 << 20
"""A text file above this is many documents in one: it is cut, or it could only be held out as a whole."""
PIECE_BYTES = 1 << 16
LONGEST_LINE_BYTES = 1 << 26
"""A JSONL record above this is rejected instead of being held in memory."""


@dataclass(frozen=True)
class TextFiles:
    """A file, or all files of a folder in sorted order (names that begin with a dot are left out).

    ``*.jsonl`` gives one document per line, taken from ``text_field``; any other file is UTF-8 text and one
    document, or one per 64 KiB cut at line ends when it is longer than 1 MiB. Empty texts are left out;
    what cannot be read becomes :class:`Rejected`. A document's text decides whether it is held out, so that
    copies of it fall on the same side.

    Raises (when read):
        InputError: the source is missing or may not be read.
    """

    source: Path
    text_field: str = "text"

    @property
    def name(self) -> str:
        return str(self.source)

    def __iter__(self) -> Iterator[Document | Rejected]:
        if not self.source.exists():
            raise InputError(
                "no such file or folder", where=str(self.source), do="give a text or JSONL file or a folder"
            )
        for path in self._paths():
            name = path.relative_to(self.source).as_posix() if path != self.source else path.name
            with os_errors_explained(path), path.open("rb") as file:
                yield from self._records(file, name) if path.suffix in JSONL_SUFFIXES else _texts(file, name)

    def lines(self) -> Iterator[tuple[str, bytes | Rejected]]:
        """The records of all JSONL files (of a single file, whatever it is called) with their places, unparsed."""
        if not self.source.exists():
            raise InputError("no such file or folder", where=str(self.source), do="give a JSONL file or a folder")
        for path in self._paths():
            if path == self.source or path.suffix in JSONL_SUFFIXES:
                name = path.relative_to(self.source).as_posix() if path != self.source else path.name
                with os_errors_explained(path), path.open("rb") as file:
                    yield from _lines(file, name)

    def _paths(self) -> Iterator[Path]:
        if self.source.is_file():
            yield self.source
            return
        for folder, folders, names in os.walk(self.source):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from (Path(folder) / name for name in sorted(names) if not name.startswith("."))

    def _records(self, file: BinaryIO, name: str) -> Iterator[Document | Rejected]:
        for where, line in _lines(file, name):
            record = line if isinstance(line, Rejected) else self._record(line, where)
            if isinstance(record, Rejected) or record.text:
                yield record

    def _record(self, line: bytes, where: str) -> Document | Rejected:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            return Rejected(where, f"no JSON ({error})", line[:200])
        if not isinstance(value, dict):
            return Rejected(where, "no JSON object", line[:200])
        if self.text_field not in value:
            return Rejected(where, f"no field {self.text_field!r}; it has {', '.join(value) or 'none'}", line[:200])
        text = value[self.text_field]
        if not isinstance(text, str):
            return Rejected(where, f"field {self.text_field!r} is no string", line[:200])
        try:
            return Document(where, text, text.encode())
        except UnicodeEncodeError:
            return Rejected(where, "half of a surrogate pair", line[:200])


def _lines(file: BinaryIO, name: str) -> Iterator[tuple[str, bytes | Rejected]]:
    number = 0
    while line := file.readline(LONGEST_LINE_BYTES):
        number += 1
        where = f"{name}:{number}"
        if len(line) == LONGEST_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := file.readline(LONGEST_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
            yield where, Rejected(where, f"line longer than {LONGEST_LINE_BYTES >> 20} MiB", line[:200])
        elif line.strip():
            yield where, line


def _texts(file: BinaryIO, name: str) -> Iterator[Document | Rejected]:
    if os.fstat(file.fileno()).st_size <= LONG_FILE_BYTES:
        pieces = iter([file.read()])
        names = iter([name])
    else:
        pieces = _pieces(file)
        names = (f"{name}#{number}" for number in range(1 << 62))
    for piece, where in zip(pieces, names, strict=False):
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError as error:
            yield Rejected(where, f"no UTF-8 ({error.reason} at byte {error.start})", piece[:200])
        else:
            if text:
                yield Document(where, text, piece)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Pieces of about PIECE_BYTES that end with a line, or inside an endless line with a character."""
    left = b""
    while block := file.read(PIECE_BYTES - len(left)):
        block = left + block
        cut = block.rfind(b"\n") + 1 or _last_character(block)
        left = block[cut:]
        yield block[:cut]
    if left:
        yield left


def _last_character(block: bytes) -> int:
    """End of the last whole UTF-8 character: before a start byte whose followers are missing."""
    for back in range(1, min(4, len(block) - 1) + 1):
        byte = block[-back]
        if byte & 0xC0 == 0xC0:  # starts a character of as many bytes as it has leading ones
            length = 8 - (byte ^ 0xFF).bit_length()
            return len(block) - back if length > back else len(block)
        if byte < 0x80:
            break
    return len(block)
