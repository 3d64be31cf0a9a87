"""Append records to a JSON-lines file, so that a kill at any byte costs at most the record being written."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from argosy.errors import StoppedError


def append_records(file: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write `records` at the end of `file` in one write, and wait until they are on storage.

    Raises StoppedError when they cannot be written, as on a full disk.
    """
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    try:
        _append(file, text.encode())
    except OSError as error:
        raise StoppedError(
            f"cannot be written: {error.strerror}", where=str(file), do="make room, then go on"
        ) from None


def _append(file: Path, text: bytes) -> None:
    handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            text = b"\n" + text  # somebody died in the middle of a line; keep ours whole
        os.write(handle, text)
        os.fsync(handle)
    finally:
        os.close(handle)
