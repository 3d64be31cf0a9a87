"""Argosy: a rank of a real run, with loader, journal, steering and all; an observer of its loop is the referee's hand.

argosy_run.py FOLDER   the run in FOLDER/run, made by the driver with the layout that is to be measured
"""

import os
import time

FIRST_LINE_NS = time.monotonic_ns()

from referee import Referee, read_task  # noqa: E402

from argosy.training.observers import Observer  # noqa: E402
from argosy.training.rank import Place, train_rank  # noqa: E402


class Stopwatch(Observer):
    """Passes the end of each step on."""

    def __init__(self, referee: Referee):
        self._referee = referee
        self._waits = True

    def on_batch(self, step: int, batches: object) -> None:
        if self._waits:  # everything is built and loaded
            self._waits = False
            self._referee.wait()

    def on_step_end(self, step: int, loss: float) -> None:
        self._referee.step_done(loss)


def main() -> None:
    referee, task = Referee(), read_task()
    rank = int(os.environ["RANK"])
    place = Place(
        run_dir=task["folder"] / os.environ["ARGOSY_RUN"],
        attempt=1,
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        local_rank=rank,
        paid_before_ns=0,
        first_line_ns=FIRST_LINE_NS,
        imported_ns=time.monotonic_ns(),
    )
    train_rank(place, [Stopwatch(referee)])


main()
