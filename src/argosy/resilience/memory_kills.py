"""Whether the kernel killed a process for its memory: the counters of its control group, versions 1 and 2."""

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


class MemoryKills:
    """Counts of kills in the control groups of some processes, as they were when last noted."""

    def __init__(self) -> None:
        self._files: dict[int, Path] = {}
        self._before: dict[Path, int] = {}

    def note(self, pids: dict[int, int]) -> None:
        """Remember in which groups the ranks' processes are now (`pids` by rank), and the counts of new groups."""
        for rank, pid in pids.items():
            file = counter_file(pid)
            if file is None:
                continue
            self._files[rank] = file
            if file not in self._before:
                self._before[file] = kills(file) or 0

    def killed(self, rank: int) -> bool:
        """Whether the count of the rank's group has risen since it was first noted."""
        file = self._files.get(rank)
        return file is not None and (kills(file) or 0) > self._before[file]


def counter_file(pid: int) -> Path | None:
    """The file that counts memory kills of the process's control group; None where there is none."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    found = None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _existing(_ROOT / "memory" / path.lstrip("/") / "memory.oom_control")
        if not controllers:
            found = _existing(_ROOT / path.lstrip("/") / "memory.events") or _existing(
                _ROOT / "unified" / path.lstrip("/") / "memory.events"
            )
    return found


def kills(file: Path) -> int | None:
    """The count in a counter file; None when it cannot be read."""
    try:
        for line in file.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        return None
    return None


def _existing(file: Path) -> Path | None:
    return file if file.exists() else None
