"""Appends records to one journal file, and never lets the journal's trouble become the training's.

Each record is one write to a file opened with O_APPEND: about a microsecond, and nothing is lost when the process is
killed. There is no fsync and no thread: a queue would lose its content on SIGKILL. Storage that stalls or is full
makes the writer drop records and count them; the count is written as soon as that is possible again.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

ENCODE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY

STALL_NS = 1_000_000
"""A write that takes longer is a stall, and what is beyond it counts."""
STALL_SHARE = 0.01
"""A writer that stalled for more than this share of its life drops what may be dropped..."""
STALL_ALLOWANCE_NS = 100_000_000
"""...after this much."""

Record = tuple[str, dict[str, Any]]


class Writer:
    """One file, one process, any of its threads."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.last_seq = -1
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()
        self._opened_ns = time.monotonic_ns()
        self._stalled_ns = 0
        self._dropped = 0
        self._why = ""
        self._torn = False
        self._told = False

    def put(self, kind: str, fields: dict[str, Any], *, droppable: bool = False) -> bool:
        """Append one record; False if it was dropped."""
        return self.put_all(((kind, fields),), droppable=droppable)

    def put_all(self, records: Sequence[Record], *, droppable: bool = False) -> bool:
        """Append records with one write; either all or none of them count as written."""
        with self._lock:
            begin = time.monotonic_ns()
            if droppable and self._stalled_ns > STALL_ALLOWANCE_NS + STALL_SHARE * (begin - self._opened_ns):
                return self._drop(len(records), "slow storage")
            try:
                seq = self.last_seq + self._dropped
                lines = []
                if self._dropped:
                    records = (("drop", {"n": self._dropped, "why": self._why}), *records)
                for kind, fields in records:
                    seq += 1
                    lines.append(orjson.dumps({"k": kind, "q": seq, **fields}, option=ENCODE))
                self._append(b"".join(lines))
            except OSError as error:
                return self._drop(len(records) - bool(self._dropped), os.strerror(error.errno or 0))
            finally:
                self._stalled_ns += max(0, time.monotonic_ns() - begin - STALL_NS)
            self.last_seq, self._dropped = seq, 0
            return True

    def close(self) -> None:
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def _append(self, content: bytes) -> None:
        if self._torn:
            content = b"\n" + content  # ends the torn line, so that only it is lost
        written = os.write(self._handle, content)
        if written != len(content):
            self._torn = written > 0 or self._torn
            raise OSError(28, "short write")  # the disk is full: nothing else cuts a write to a regular file
        self._torn = False

    def _drop(self, count: int, why: str) -> bool:
        self._dropped += count
        self._why = why
        if not self._told:
            self._told = True
            print(f"{self.path}: journal records are dropped: {why}; training goes on", file=sys.stderr, flush=True)
        return False
