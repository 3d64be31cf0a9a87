"""What a rank that hangs is doing: its Python stacks, dumped by the rank itself or read from outside."""

import faulthandler
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

DUMP_SIGNAL = signal.SIGUSR1
_WAIT_S = 0.3
_CHARACTERS = 6_000


def stacks_file(attempt_folder: Path, rank: int) -> Path:
    return attempt_folder / f"rank-{rank}.stacks"


def dump_on_signal(file: Path) -> None:
    """In a rank: write all threads' stacks to `file` on :data:`DUMP_SIGNAL`, even while native code holds the lock."""
    stream = file.open("ab", buffering=0)  # stays open as long as the process
    faulthandler.register(DUMP_SIGNAL, file=stream, all_threads=True)


def collect_stacks(files: dict[int, Path], pids: dict[int, int]) -> dict[int, str]:
    """Ask the ranks in `pids` for their stacks and return what came within a moment, else what the kernel knows."""
    before = {rank: _size(files[rank]) for rank in pids}
    asked = {rank: pid for rank, pid in pids.items() if files[rank].exists() and _signal(pid)}
    give_up = time.monotonic() + _WAIT_S
    while time.monotonic() < give_up and any(_size(files[rank]) == before[rank] for rank in asked):
        time.sleep(0.01)
    found = {}
    for rank, pid in pids.items():
        said = _since(files[rank], before[rank])
        found[rank] = (said or _from_outside(pid))[-_CHARACTERS:]
    return found


def _from_outside(pid: int) -> str:
    """A stopped process answers nobody: py-spy can read it, and the kernel says where it sleeps."""
    if (spy := shutil.which("py-spy")) is not None:
        try:
            read = subprocess.run([spy, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=2)
            if read.returncode == 0:
                return read.stdout
        except subprocess.TimeoutExpired:
            pass
    lines = []
    for name in ("wchan", "syscall", "stack"):
        try:
            lines.append(f"{name}: {Path(f'/proc/{pid}/{name}').read_text().strip()}")
        except OSError as error:
            lines.append(f"{name}: {error.strerror}")
    return "\n".join(lines)


def _signal(pid: int) -> bool:
    try:
        os.kill(pid, DUMP_SIGNAL)
    except ProcessLookupError:
        return False
    return True


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _since(file: Path, start: int) -> str:
    if not file.exists():
        return ""
    with file.open("rb") as stream:
        stream.seek(start)
        return stream.read().decode(errors="replace")
