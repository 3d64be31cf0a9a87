"""``python -m argosy.drill.kill_once RUN STEP``: kill one rank of a run when it comes to a step. For `make demo`.

It ends when that is done, or when the run has ended; a run that is not there yet is waited for.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from argosy.errors import ArgosyError
from argosy.launch.stop import is_running
from argosy.registry.run_folder import RunFolder
from argosy.resilience.signs import Sign, SignReader

_WAIT_S = 120.0
"""For a run to begin."""
_POLL_S = 0.02


def main() -> int:
    run, step = RunFolder(Path(sys.argv[1])), int(sys.argv[2])
    give_up = time.monotonic() + _WAIT_S
    began = len(run.attempts())
    while len(run.attempts()) == began:
        if time.monotonic() > give_up:
            return 0
        time.sleep(_POLL_S)
    attempt = run.attempts()[-1]
    while _lives(run):
        pages = run.path.glob(f"heartbeat/attempt-{attempt}-rank-*")
        files = {int(page.name.rpartition("-")[2]): page for page in pages}
        with SignReader(files) as reader:
            signs = [reader.read(rank) for rank in files]
        if signs and all(_reached(sign, step) for sign in signs):
            sign = random.choice(signs)
            assert sign.beat is not None
            os.kill(sign.beat.pid, signal.SIGKILL)
            print(f"rank {sign.rank} has been killed in step {sign.beat.step}, on purpose", flush=True)
            return 0
        time.sleep(_POLL_S)
    return 0


def _reached(sign: Sign, step: int) -> bool:
    return sign.beat is not None and sign.beat.step >= step


def _lives(run: RunFolder) -> bool:
    try:
        return is_running(run)
    except ArgosyError:
        return False


if __name__ == "__main__":
    sys.exit(main())
