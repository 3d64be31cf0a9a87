"""Follows a journal file that is being written: each look returns the records added since the last one."""

from pathlib import Path
from typing import Any

import orjson


class Tail:
    """A growing JSONL file; a line without its end waits for the next look, a broken one is passed over.

    The file may appear later. Passing over is right only for a live view: the ledger counts broken lines.
    """

    def __init__(self, path: Path):
        self.path = path
        self._offset = 0

    def records(self) -> list[dict[str, Any]]:
        """New whole records, oldest first."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        end = content.rfind(b"\n") + 1
        self._offset += end
        found = []
        for line in content[:end].splitlines():
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(record, dict):
                found.append(record)
        return found
