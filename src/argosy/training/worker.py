"""The training that one rank's process does, as the launcher's arguments say (:mod:`argosy.launch.rank`).

``RANK``, ``WORLD_SIZE`` and ``LOCAL_RANK`` come from the environment.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from argosy.errors import ArgosyError
from argosy.training.observers import Observer


def main(
    arguments: Sequence[str] | None = None, observers: Sequence[Observer] = (), first_line_ns: int | None = None
) -> int:
    """Train one rank to its end; the exit code. What a user can act on is printed as one line.

    `first_line_ns` is when the process ran its first own line: what it imported since is paid for, and booked.
    """
    first_line_ns = first_line_ns or time.monotonic_ns()
    parser = argparse.ArgumentParser(prog="argosy.training.worker")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--paid-before-ns", type=int, default=0)
    parser.add_argument("--data-folder", type=Path)
    options = parser.parse_args(arguments)

    # What imports and set-up make lives as long as the process: looking for garbage in it is in vain.
    gc.disable()
    from argosy.training.rank import Place, train_rank

    place = Place(
        run_dir=options.run_dir,
        attempt=options.attempt,
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        paid_before_ns=options.paid_before_ns,
        data_folder=options.data_folder,
        first_line_ns=first_line_ns,
        imported_ns=time.monotonic_ns(),
    )
    try:
        return train_rank(place, observers)
    except ArgosyError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code
