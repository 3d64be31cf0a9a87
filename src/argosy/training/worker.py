"""The process of one rank: ``python -m argosy.training.worker --run-dir RUN --attempt N --paid-before-ns X``.

``RANK``, ``WORLD_SIZE`` and ``LOCAL_RANK`` come from the environment.
"""

import time

_FIRST_LINE_NS = time.monotonic_ns()  # before the imports below: they are paid for and booked

import argparse  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from argosy.errors import ArgosyError  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="argosy.training.worker")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--paid-before-ns", type=int, default=0)
    parser.add_argument("--data-folder", type=Path)
    options = parser.parse_args()

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
        first_line_ns=_FIRST_LINE_NS,
        imported_ns=time.monotonic_ns(),
    )
    try:
        return train_rank(place)
    except ArgosyError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # All files are closed. Taking torch's modules apart one by one would cost seconds of paid time.
    os._exit(exit_code)
