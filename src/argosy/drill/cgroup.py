"""A control group that lets a process have only a little more memory than it has, of version 1 or 2."""

import contextlib
import os
from pathlib import Path

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")


def confine(pid: int, more_bytes: int) -> str | None:
    """Let `pid` have `more_bytes` of new memory; why that cannot be done here, None when it was.

    What it has already stays charged to the group that it leaves.
    """
    name = f"argosy-drill-{os.getpid()}-{pid}"
    try:
        if (_V1 / "memory.limit_in_bytes").exists():
            group = _V1 / name
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text(str(more_bytes))
            with contextlib.suppress(OSError):  # without swap accounting there is no such file
                (group / "memory.memsw.limit_in_bytes").write_text(str(more_bytes))
        elif (_V2 / "cgroup.controllers").exists():
            group = _V2 / name
            group.mkdir()
            (group / "memory.max").write_text(str(more_bytes))
            with contextlib.suppress(OSError):
                (group / "memory.swap.max").write_text("0")
        else:
            return "this machine shows no memory control groups"
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        return f"a control group cannot be made here: {error.strerror}"
    return None
