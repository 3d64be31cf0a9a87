"""Files that a report writes: whole or not at all."""

import os
from pathlib import Path

from argosy.errors import InputError


def write_text(file: Path, content: str) -> None:
    """Write `content` to `file` through a temporary name. Raises InputError when it cannot be written."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(content, encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(
            f"cannot be written: {error.strerror}", where=str(file), do="name a place that you may write"
        ) from None
