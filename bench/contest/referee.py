"""The contestant's end of a contest: it takes so many steps when told to, reports them, and else stands still.

The driver (bench/speed.py) writes a number of steps to the contestant's standard input and reads a line of JSON with
their seconds and losses from its standard output. Whatever else the contestant prints goes to standard error.
No import but the standard library: each contestant runs in an environment of its own.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def read_task() -> dict[str, Any]:
    """The task (see bench/contest/task.py) whose folder is the first argument, with that ``folder``."""
    folder = Path(sys.argv[1])
    return json.loads((folder / "task.json").read_text()) | {"folder": folder}


class Referee:
    """Holds the contestant between its chunks of steps."""

    def __init__(self) -> None:
        self._reports = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._losses: list[Any] = []
        self._steps = 0
        self._began_s = 0.0

    def wait(self, **report: Any) -> None:
        """Report, then wait for the next chunk; the process ends here when there is none."""
        self._reports.write(json.dumps(report) + "\n")
        self._reports.flush()
        line = sys.stdin.readline()
        if not line:
            os._exit(0)  # no evaluation, no checkpoint at the end: the contest is over
        self._steps, self._losses = int(line), []
        self._began_s = time.perf_counter()

    def step_done(self, loss: Any) -> None:
        """Call after each step with its loss (a number or a scalar tensor), which is read when the chunk is over."""
        self._losses.append(loss)
        if len(self._losses) == self._steps:
            seconds = time.perf_counter() - self._began_s
            self.wait(seconds=seconds, losses=[float(loss) for loss in self._losses])
