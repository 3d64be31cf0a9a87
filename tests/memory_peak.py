"""Memory counted allocation by allocation, for tests of what a piece of work may take."""

import tracemalloc
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_bytes(work: Callable[[], object], mapped: int = 0) -> int:
    """The most that was allocated at once: tensors by torch's own count, bytes objects by Python's.

    torch also counts a file that it maps, of `mapped` bytes, though it takes no memory that cannot be had back.
    """
    tracemalloc.start()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
            work()
        python_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    changes = [event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = most = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        if abs(event.nbytes()) != mapped:
            now += event.nbytes()
            most = max(most, now)
    return most + python_bytes
