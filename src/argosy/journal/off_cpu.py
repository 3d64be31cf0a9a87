"""Time in which a thread that should compute had no processor: preempted, over its quota, stopped, or asleep.

Where the host is the device, a math phase that runs without a processor does no math, whatever the phase is called.
Wall time less processor time says how much that was; the kernel's count of time spent runnable but waiting for a
processor says how much of it was other people's work. It costs 1.2 µs more per switch.
"""

import os
import time
from collections.abc import Callable

_SCHEDSTAT = "/proc/thread-self/schedstat"


class OffCpu:
    """Of the thread that makes it. `math` are the phases in which the thread never waits on purpose.

    Right only where that thread does all the work: with more threads it also waits for their ends.
    """

    def __init__(self, math: frozenset[int], *, clock: Callable[[], int] = time.thread_time_ns):
        self._math = math
        self._clock = clock
        self.off: dict[int, int] = dict.fromkeys(math, 0)
        """Math phase → ns without a processor, in the step so far."""
        self._queued = 0
        try:
            self._stat = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._stat = -1  # a kernel without the count: all of it is then unexplained
        self._entered = clock(), self._queued_ns()

    def switch(self, was: int, to: int, wall_ns: int) -> None:
        """Phase `was` has run for `wall_ns` and gives way to `to`."""
        if was not in self._math and to not in self._math:
            return
        now = self._clock(), self._queued_ns()
        if was in self._math:
            self.off[was] += max(0, wall_ns - (now[0] - self._entered[0]))  # both clocks are read a moment apart
            self._queued += now[1] - self._entered[1]
        self._entered = now

    def take(self) -> list[int]:
        """[ns without a processor in math phases, ns of it in the queue for one] since the last call."""
        off = sum(self.off.values())
        queued, self._queued = min(self._queued, off), 0
        self.off = dict.fromkeys(self._math, 0)
        return [off, queued]

    def close(self) -> None:
        if self._stat >= 0:
            os.close(self._stat)
            self._stat = -1

    def _queued_ns(self) -> int:
        return int(os.pread(self._stat, 64, 0).split()[1]) if self._stat >= 0 else 0
