"""Mirror to TensorBoard: event files in `RUN/trackers/tensorboard`, one for each attempt, which it shows as one run."""

from tensorboard.summary import Writer

from argosy.integrations.trackers import Opening


class TensorBoard:
    """Writes event files."""

    def __init__(self, given: Opening):
        self._writer = Writer(str(given.folder))

    def log(self, step: int, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def open_tracker(given: Opening) -> TensorBoard:
    """Event files of this attempt."""
    return TensorBoard(given)
