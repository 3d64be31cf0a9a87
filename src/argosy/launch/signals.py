"""Signals that ask for a clean stop, as a file descriptor that a poll can wait for."""

import os
import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """While entered, SIGINT, SIGTERM and SIGHUP only set :attr:`asked`; a second one changes nothing."""

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        """The first signal that came."""
        self.must_end = False
        """A SIGTERM came: whoever sent it will not wait for ever."""
        self.fd, self._write = os.pipe()  # not inherited (PEP 446)
        for end in (self.fd, self._write):
            os.set_blocking(end, False)

    def __enter__(self) -> "StopSignals":
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        # The byte that Python writes here makes a poll return at once: a handler alone would not (PEP 475).
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.fd)
        os.close(self._write)

    def drain(self) -> None:
        """Make :attr:`fd` quiet until the next signal."""
        try:
            while os.read(self.fd, 512):
                pass
        except BlockingIOError:
            return

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.must_end |= number == signal.SIGTERM
        if self.asked is None:
            self.asked = signal.Signals(number)
