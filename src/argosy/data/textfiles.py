"""Text, JSONL and table files as a corpus."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from argosy.data.corpus import Document, Rejected
from argosy.data.listing import SourceFile, files_of, fingerprint
from argosy.data.tables import arrow_rows, document_of, documents_of, parquet_rows, saved_dataset

JSONL_SUFFIXES = {".jsonl", ".ndjson"}
TABLES = {".parquet": parquet_rows, ".arrow": arrow_rows}
LONG_FILE_BYTES = 1 << 20
"""A text file above this is many documents in one: it is cut, or it could only be held out as a whole."""
PIECE_BYTES = 1 << 16
LONGEST_LINE_BYTES = 1 << 26
"""A JSONL record above this is rejected instead of being held in memory."""


@dataclass(frozen=True)
class TextFiles:
    """A file, or all files of a folder in sorted order (names that begin with a dot are left out), here or behind an
    address of fsspec (``s3://bucket/folder``).

    ``*.jsonl``, ``*.parquet`` and ``*.arrow`` give one document per record, taken from ``text_field``; any other file
    is UTF-8 text and one document, or one per 64 KiB cut at line ends when it is longer than 1 MiB. Files that end in
    ``.gz`` or ``.zst`` are unpacked. Of a folder that ``datasets.save_to_disk`` made the rows are read. Empty texts are
    left out; what cannot be read becomes :class:`Rejected`. A document's text decides whether it is held out, so that
    copies of it fall on the same side.

    Attributes:
        id_field: field that names a record; None: it is named by file and number.

    Raises (when read):
        InputError: the source is missing, damaged or may not be read.
    """

    source: Path | str
    text_field: str = "text"
    id_field: str | None = None

    @property
    def name(self) -> str:
        return str(self.source)

    @property
    def fingerprint(self) -> str:
        """Changes with the files."""
        return fingerprint(files_of(self.source))

    def __iter__(self) -> Iterator[Document | Rejected]:
        for file in saved_dataset(files_of(self.source)):
            if file.suffix in TABLES:
                columns = [self.text_field, *([self.id_field] if self.id_field else [])]
                rows = TABLES[file.suffix](file, columns)
                yield from documents_of(rows, file, self.text_field, self.id_field)
                continue
            with file.open() as stream:
                jsonl = file.suffix in JSONL_SUFFIXES
                yield from self._records(stream, file.name) if jsonl else _texts(stream, file)

    def lines(self) -> Iterator[tuple[str, bytes | Rejected]]:
        """The records of all JSONL files (of a single file, whatever it is called) with their places, unparsed."""
        files = files_of(self.source)
        for file in files:
            if len(files) == 1 or file.suffix in JSONL_SUFFIXES:
                with file.open() as stream:
                    yield from _lines(stream, file.name)

    def _records(self, stream: BinaryIO, name: str) -> Iterator[Document | Rejected]:
        for where, line in _lines(stream, name):
            yield from (line,) if isinstance(line, Rejected) else self._record(line, where)

    def _record(self, line: bytes, where: str) -> Iterator[Document | Rejected]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Rejected(where, f"no JSON ({error})", line[:200])
            return
        if not isinstance(value, dict):
            yield Rejected(where, "no JSON object", line[:200])
            return
        for record in document_of(value, where, self.text_field, self.id_field):
            yield Rejected(where, record.reason, line[:200]) if isinstance(record, Rejected) else record


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


def _texts(stream: BinaryIO, file: SourceFile) -> Iterator[Document | Rejected]:
    beginning = stream.read(LONG_FILE_BYTES + 1)
    if len(beginning) <= LONG_FILE_BYTES:
        pieces, names = iter([beginning]), iter([file.name])
    else:
        pieces = _pieces(stream, beginning)
        names = (f"{file.name}#{number}" for number in range(1 << 62))
    for piece, where in zip(pieces, names, strict=False):
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError as error:
            yield Rejected(where, f"no UTF-8 ({error.reason} at byte {error.start})", piece[:200])
        else:
            if text:
                yield Document(where, text, piece)


def _pieces(stream: BinaryIO, beginning: bytes) -> Iterator[bytes]:
    """Pieces of about PIECE_BYTES that end with a line, or inside an endless line with a character."""
    file = io.BufferedReader(_Behind(beginning, stream))
    left = b""
    while block := file.read(PIECE_BYTES - len(left)):
        block = left + block
        cut = block.rfind(b"\n") + 1 or _last_character(block)
        left = block[cut:]
        yield block[:cut]
    if left:
        yield left


class _Behind(io.RawIOBase):
    """What was read already, then the rest of a stream."""

    def __init__(self, beginning: bytes, stream: BinaryIO):
        self._beginning = io.BytesIO(beginning)
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._beginning.read(len(buffer)) or self._stream.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


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
