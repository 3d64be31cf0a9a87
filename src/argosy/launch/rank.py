"""The process of one rank: the training, and what lets the supervisor see how it fares and why it fell.

Forked from the warm server, or started cold as ``python -m argosy.launch.rank``. ``RANK``, ``WORLD_SIZE`` and
``LOCAL_RANK`` come from the environment.
"""

import time

_FIRST_LINE_NS = time.monotonic_ns()  # before the imports below: they are paid for and booked

import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402

from argosy.registry.run_folder import RunFolder  # noqa: E402
from argosy.resilience.last_words import last_words_file, write_last_words  # noqa: E402
from argosy.resilience.stacks import dump_on_signal, stacks_file  # noqa: E402

if TYPE_CHECKING:
    from argosy.training.observers import Observer

CRASHED = 1


def main(arguments: Sequence[str], first_line_ns: int | None = None, more: Sequence["Observer"] = ()) -> int:
    """Train as the launcher's `arguments` say, with `more` observers than the detectors; the exit code.

    An exception leaves its last words in the attempt's folder before anything else: the peers fall over this rank as
    soon as its sockets close, and what they say must not be taken for the cause.
    """
    first_line_ns = first_line_ns or time.monotonic_ns()
    # Until the training looks for them, signals wait: a stop that comes during start-up is no crash.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    folder, rank = _attempt_folder(arguments), int(os.environ["RANK"])
    dump_on_signal(stacks_file(folder, rank))
    try:
        from argosy.launch.observers import detectors
        from argosy.training import worker

        run_dir, attempt = folder.parent.parent, int(folder.name.removeprefix("attempt-"))
        table = RunFolder.open(run_dir).recipe().resilience
        return worker.main(arguments, [*more, *detectors(run_dir, attempt, rank, table)], first_line_ns)
    except BaseException as error:  # SystemExit too: leaving is the loop's to decide
        write_last_words(last_words_file(folder, rank), rank, error)
        traceback.print_exc()
        return CRASHED


def preload() -> None:
    """In the warm server: import what every rank needs."""
    import argosy.launch.observers
    import argosy.training.rank  # noqa: F401


def _attempt_folder(arguments: Sequence[str]) -> Path:
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    return Path(options["--run-dir"], "events", f"attempt-{options['--attempt']}")


if __name__ == "__main__":
    exit_code = main(sys.argv[1:], _FIRST_LINE_NS)
    sys.stdout.flush()
    sys.stderr.flush()
    # All files are closed. Taking torch's modules apart one by one would cost seconds of paid time.
    os._exit(exit_code)
