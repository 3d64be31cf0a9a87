"""A progress line that also starts a mirror for each tracker (:mod:`argosy.integrations.mirror`) beside the ranks."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from argosy.launch.live import LiveLine

GRACE_S = 15.0
"""How long mirrors may take to send the rest once training has ended, all together."""


class TrackedLine(LiveLine):
    """Follows an attempt for the terminal and for trackers. Use as a context manager around the training."""

    def __init__(self, stream: TextIO | None, trackers: Sequence[str]):
        super().__init__(stream)
        self._trackers = trackers
        self._mirrors: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = Path()

    def __enter__(self) -> "TrackedLine":
        return self

    def follow(self, run: Path, attempt: int) -> None:
        super().follow(run, attempt)
        self._folder = run / "trackers"
        for name in self._trackers:
            try:
                self._mirrors[name] = self._start(run, attempt, name)
            except OSError as error:
                self.say(f"tracker {name} cannot be started: {error.strerror}; training goes on")

    def _start(self, run: Path, attempt: int, name: str) -> "subprocess.Popen[bytes]":
        self._folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "argosy.integrations.mirror", str(run), str(attempt), name]
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, process_group=0
            )

    def __exit__(self, *_: object) -> None:
        give_up = time.monotonic() + GRACE_S
        for name, mirror in self._mirrors.items():
            try:
                code = mirror.wait(max(0.0, give_up - time.monotonic()))
            except subprocess.TimeoutExpired:
                mirror.kill()
                mirror.wait()
                self.say(f"tracker {name} did not answer within {GRACE_S:g} s and was left behind")
                continue
            if code:
                self.say(f"tracker {name} is incomplete: see {self._folder / name}.log")
