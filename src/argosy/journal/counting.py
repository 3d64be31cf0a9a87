"""A recorder that only counts collectives."""

from collections import Counter
from contextlib import nullcontext

from argosy.journal.recorder import NullRecorder, Phase


class CollectiveCounter(NullRecorder):
    """Counts what process groups report to it, by (axis, operation, bytes).

    Receives are left out, as the other ends of sends, and the control group, as no part of a layout.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, int]] = Counter()

    def collective(
        self, axis: str, op: str, group: str, nbytes: int, ends: tuple[int, int | None] | None = None
    ) -> Phase:
        if axis != "control" and op != "recv":
            self.counts[axis, op, nbytes] += 1
        return nullcontext()
