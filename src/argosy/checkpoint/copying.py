"""Copy checkpoints to the third tier beside training: ``python -m … FOLDER TARGET RUN_ID KEEP_LAST`` copies one.

One copy at a time, in a process of its own: an upload may take longer than the writer may be kept from the next save.
"""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from argosy.checkpoint.copies import Copies
from argosy.checkpoint.folders import step_folder
from argosy.errors import ArgosyError


@dataclass(frozen=True)
class Copied:
    """How a copy ended."""

    step: int
    why: str | None = None
    """Why it failed."""


class Copying:
    """Rank 0's copies: always of the newest checkpoint, begun at least `every_s` apart."""

    def __init__(self, checkpoints: Path, target: str, run_id: str, every_s: float, keep_last: int):
        self._checkpoints = checkpoints
        self._arguments = (target, run_id, str(keep_last))
        self._every_s = every_s
        self._process: subprocess.Popen[str] | None = None
        self._step = 0
        self._newest = 0
        self._began_s = float("-inf")

    def offer(self, step: int) -> None:
        """There is a newer checkpoint."""
        self._newest = step

    def go_on(self) -> Copied | None:
        """Begin what is due; how the last copy ended, once."""
        ended = self._ended(wait=False)
        if self._process is None and self._newest > self._step and time.monotonic() >= self._began_s + self._every_s:
            self._begin()
        return ended

    def finish(self) -> list[Copied]:
        """Copy the newest checkpoint, whatever the interval; returns when it is there, and how copies ended."""
        ended = [self._ended(wait=True)]
        if self._newest > self._step or any(one and one.why for one in ended):
            self._begin()
            ended.append(self._ended(wait=True))
        return [one for one in ended if one is not None]

    def _begin(self) -> None:
        self._step, self._began_s = self._newest, time.monotonic()
        folder = step_folder(self._checkpoints, self._step)
        command = [sys.executable, "-m", "argosy.checkpoint.copying", str(folder), *self._arguments]
        # A session of its own: a signal to all processes of a job leaves it to finish.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def _ended(self, *, wait: bool) -> Copied | None:
        if self._process is None or (not wait and self._process.poll() is None):
            return None
        _, said = self._process.communicate()
        code, self._process = self._process.returncode, None
        if code == 0:
            return Copied(self._step)
        return Copied(self._step, said.strip().splitlines()[-1] if said.strip() else f"ended with {code}")


def main(folder: Path, target: str, run_id: str, keep_last: int) -> int:
    try:
        Copies(target, run_id).put(folder, keep_last)
    except ArgosyError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
