"""What `argosy train` shows while the ranks work: one line that is rewritten, or plain lines without a terminal."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from argosy.ledger.progress import Progress

_TERMINAL_EVERY_S = 0.5
_PLAIN_EVERY_S = 10.0
_PLAIN_COLUMNS = 200


class _Progress:
    """The line about an attempt, made when it is first wanted: by then the ranks have been started."""

    def __init__(self, run: Path, attempt: int):
        self._place = (run, attempt)
        self._progress: Progress | None = None

    def __call__(self, columns: int) -> str:
        from argosy.ledger.progress import Progress, format_line

        self._progress = self._progress or Progress(*self._place)
        return format_line(self._progress.poll(), columns)


class LiveLine:
    """Writes to `stream`, or nothing when that is None. No trouble in here ends the training that it shows."""

    def __init__(self, stream: TextIO | None):
        self._stream = stream
        self._terminal = stream is not None and stream.isatty()
        self._every_s = _TERMINAL_EVERY_S if self._terminal else _PLAIN_EVERY_S
        self._next = 0.0
        self._current: Callable[[int], str] | None = None
        self._unfinished = False

    def say(self, text: str) -> None:
        """One line of its own."""
        self._end_line()
        self._write(f"{text}\n")

    def follow(self, run: Path, attempt: int) -> None:
        """Show the progress of this attempt from now on, whenever :meth:`update` is called."""
        self._current = _Progress(run, attempt)
        self._next = time.monotonic() + self._every_s

    def update(self) -> None:
        """Read what is new in the journal and show it: twice a second, or each ten seconds without a terminal."""
        if self._stream is None or self._current is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every_s
        try:
            line = self._current(shutil.get_terminal_size().columns - 1 if self._terminal else _PLAIN_COLUMNS)
        except Exception as error:  # a fault in bookkeeping must not cost the run
            self._current = None
            self.say(f"no progress is shown: {type(error).__name__}: {error}; training goes on")
            return
        self._write(f"\r\x1b[2K{line}" if self._terminal else f"{line}\n")
        self._unfinished = self._terminal

    def close(self) -> None:
        """Show the last state and leave the line."""
        self._next = 0.0
        self.update()
        self._end_line()

    def _end_line(self) -> None:
        if self._unfinished:
            self._write("\n")
            self._unfinished = False

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # the reader of a pipe has gone, as in `argosy train … | head`
            self._stream = None
