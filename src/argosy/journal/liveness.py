"""Whether a process holds a lock file, without touching the lock.

Trying the lock would hold it for a moment, and a launcher that starts in this moment would be turned away.
"""

import os
from pathlib import Path


def is_held(file: Path) -> bool:
    """True if a process of this host has a flock on `file`, as /proc/locks lists them (proc(5))."""
    try:
        status = file.stat()
        locks = Path("/proc/locks").read_text()
    except FileNotFoundError:
        return False
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any("FLOCK" in line and place in line.split() for line in locks.splitlines())
