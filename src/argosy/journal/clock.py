"""The clocks of a journal.

Durations come from CLOCK_MONOTONIC only, which all processes of a host share. The wall clock appears in anchors
and nowhere else, so a wall-clock step changes no duration. Which host and which boot a stamp belongs to is said by
the boot id.
"""

import os
import time
from pathlib import Path
from typing import Any

mono_ns = time.monotonic_ns


def boot_id() -> str:
    """The kernel's id of this boot: stamps of CLOCK_MONOTONIC compare only within one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def boottime_ns() -> int:
    """CLOCK_BOOTTIME: like CLOCK_MONOTONIC, but it goes on while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def anchor() -> dict[str, Any]:
    """Stamps of all clocks, taken together [ns]."""
    return {"t": mono_ns(), "wall": time.time_ns(), "boot": boottime_ns()}


def process_start_ns(pid: int | str = "self") -> int:
    """When the kernel started a process, on CLOCK_MONOTONIC [ns].

    Field 22 of /proc/PID/stat counts ticks since boot (proc(5)), rounded down: up to one tick, usually 10 ms, early.
    """
    stat = Path(f"/proc/{pid}/stat").read_text()
    ticks = int(stat.rpartition(")")[2].split()[19])  # the name in parentheses may hold spaces
    since_boot_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return mono_ns() - (boottime_ns() - since_boot_ns)
