"""How much memory this machine still has to give."""

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
"""Limit and use of the container, in version 2 and version 1."""


def free_memory_bytes(meminfo: Path = _MEMINFO, cgroups: tuple[tuple[Path, Path], ...] = _CGROUPS) -> int | None:
    """What can be allocated without swapping, within the container's limit; None where nobody says."""
    known = []
    if meminfo.exists():
        available = (line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        known += [int(line.split()[1]) << 10 for line in available]  # in KiB, whatever it calls them
    for limit, used in cgroups:
        if limit.exists() and (text := limit.read_text().strip()).isdigit():  # "max": no limit
            known.append(max(0, int(text) - int(used.read_text())))
    return min(known, default=None)
