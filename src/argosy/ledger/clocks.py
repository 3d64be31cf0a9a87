"""One timeline for a run over hosts, boots and wall-clock steps.

Run time is the monotonic clock of each boot, shifted once so that it agrees with the wall clock at the earliest
anchor of that boot. So durations are monotonic durations, and a wall clock that is set later moves nothing.
Offsets between hosts are as good as their wall clocks were at that anchor.
"""

from collections.abc import Iterator

from argosy.journal.reader import Journal


class RunClock:
    """Turns monotonic stamps of a boot into run time [ns since the epoch]."""

    def __init__(self, journal: Journal):
        earliest: dict[str, tuple[int, int]] = {}
        for boot, mono, wall in _anchors(journal):
            earliest[boot] = min(earliest.get(boot, (mono, wall)), (mono, wall))
        self._offset_ns = {boot: wall - mono for boot, (mono, wall) in earliest.items()}

    def offset_ns(self, boot_id: str) -> int:
        """What to add to a monotonic stamp of that boot."""
        return self._offset_ns[boot_id]


def _anchors(journal: Journal) -> Iterator[tuple[str, int, int]]:
    for file in journal.files:
        yield file.header["boot_id"], file.header["t"], file.header["wall"]
    for row in journal.paid:
        if "boot_id" in row:
            yield row["boot_id"], row["t"], row["wall"]
