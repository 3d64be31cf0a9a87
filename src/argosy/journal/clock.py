"""The clocks of a journal.

Durations come from CLOCK_MONOTONIC only, which all processes of a host share. The wall clock appears in anchors
and nowhere else, so a wall-clock step changes no duration. Which host and which boot a stamp belongs to is said by
the boot id.
"""

import functools
import os
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import psutil

mono_ns = time.monotonic_ns
_PROC = Path("/proc")
"""Linux only; what stands in for it elsewhere is said where it is read."""


def boot_id() -> str:
    """The kernel's id of this boot: stamps of CLOCK_MONOTONIC compare only within one."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return _boot_session()


@functools.cache
def _boot_session() -> str:
    """The same of macOS; where that is not known either, one made of the host and the minute of its boot."""
    try:
        done = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True)
        known = done.stdout.strip().lower()
    except OSError:
        known = ""
    return known or str(uuid.uuid5(uuid.NAMESPACE_OID, f"{socket.gethostname()} {psutil.boot_time() // 60}"))


def boottime_ns() -> int:
    """CLOCK_BOOTTIME: like CLOCK_MONOTONIC, but it goes on while the machine is suspended. Without it the latter."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def anchor() -> dict[str, Any]:
    """Stamps of all clocks, taken together [ns]."""
    return {"t": mono_ns(), "wall": time.time_ns(), "boot": boottime_ns()}


def process_start_ns(pid: int | str = "self") -> int:
    """When the kernel started a process, on CLOCK_MONOTONIC [ns].

    Field 22 of /proc/PID/stat counts ticks since boot (proc(5)), rounded down: up to one tick, usually 10 ms, early.
    Elsewhere the kernel keeps the wall clock of the start, as exact as that was not set since.
    """
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except FileNotFoundError:
        started_s = psutil.Process(None if pid == "self" else int(pid)).create_time()
        return mono_ns() - (time.time_ns() - int(started_s * 1e9))
    ticks = int(stat.rpartition(")")[2].split()[19])  # the name in parentheses may hold spaces
    since_boot_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return mono_ns() - (boottime_ns() - since_boot_ns)
