"""What `argosy train` shows while the ranks work: one line that is rewritten, or plain lines where there is no
terminal."""

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from argosy.ledger.progress import Progress

_TERMINAL_EVERY_S = 0.5
_PLAIN_EVERY_S = 10.0


class LiveLine:
    """Writes to `stream`; shows nothing when that is None."""

    def __init__(self, stream: TextIO | None):
        self._stream = stream
        self._terminal = stream is not None and stream.isatty()
        self._progress: Progress | None = None
        self._next = 0.0
        self._open = False

    def say(self, text: str) -> None:
        """One line of its own."""
        if self._stream is not None:
            self._end_line()
            print(text, file=self._stream, flush=True)

    def follow(self, run: Path, attempt: int) -> None:
        """Show the progress of this attempt from now on, whenever :meth:`update` is called."""
        from argosy.ledger.progress import Progress  # only once ranks are starting, so that it delays nothing

        self._progress = Progress(run, attempt)
        self._next = time.monotonic() + (_TERMINAL_EVERY_S if self._terminal else _PLAIN_EVERY_S)

    def update(self) -> None:
        """Read what is new in the journal and show it, at most twice a second (each ten seconds without terminal)."""
        if self._stream is None or self._progress is None or time.monotonic() < self._next:
            return
        from argosy.ledger.progress import format_line

        self._next = time.monotonic() + (_TERMINAL_EVERY_S if self._terminal else _PLAIN_EVERY_S)
        width = shutil.get_terminal_size().columns if self._terminal else 200
        line = format_line(self._progress.poll(), width)
        if self._terminal:
            print(f"\r\x1b[2K{line}", end="", file=self._stream, flush=True)
            self._open = True
        else:
            print(line, file=self._stream, flush=True)

    def close(self) -> None:
        """Show the last state and leave the line."""
        self._next = 0.0
        self.update()
        self._end_line()

    def _end_line(self) -> None:
        if self._open and self._stream is not None:
            print(file=self._stream)
            self._open = False
