"""A contestant as the driver sees it: processes that take steps when told to (the other end is referee.py)."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from contest.configurations import Entry
from peers.install import ENVIRONMENTS, interpreter

_ANSWER_S = 180.0
"""A contestant that compiles on a busy machine takes most of it; one that stands still longer never comes back."""


class Failed(Exception):
    """A contestant ended or said something else than a report; the text is the last line of its log."""


class Contestant:
    """The ranks of one contestant. Ends them when it is closed."""

    def __init__(self, name: str, entry: Entry, folder: Path, ranks: int, threads: int, port: int):
        self.name = name
        self.log = folder / f"{name.replace(' ', '-')}.log"
        python = str(interpreter(entry.peer)) if entry.peer else sys.executable
        command = [python, str(Path(__file__).parent / entry.script), str(folder), *entry.arguments]
        cores = sorted(psutil.Process().cpu_affinity())
        self._ranks = []
        with self.log.open("wb") as log:
            for rank in range(ranks):
                environment = os.environ | {
                    "OMP_NUM_THREADS": str(threads),
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "LOCAL_WORLD_SIZE": str(ranks),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "ARGOSY_RUN": name,
                    "TORCHINDUCTOR_CACHE_DIR": str(ENVIRONMENTS / "inductor"),  # compile once, not in each contest
                    "HF_HUB_OFFLINE": "1",
                }
                if ranks == 1:  # transformers takes these to mean that there are others
                    environment = {k: v for k, v in environment.items() if entry.peer is None or "RANK" not in k}
                    environment = {k: v for k, v in environment.items() if entry.peer is None or "WORLD" not in k}
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, text=True
                )
                if ranks > 1:  # two ranks that share a core run as if on one
                    psutil.Process(process.pid).cpu_affinity(cores[rank * threads :][:threads] or cores)
                self._ranks.append(process)

    def ready(self) -> None:
        """Wait until it is built and loaded. Raises Failed."""
        self._reports()

    def steps(self, number: int) -> tuple[float, list[float]]:
        """Take steps: seconds until the slowest rank was done, and the loss of each step over all ranks."""
        for rank in self._ranks:
            assert rank.stdin is not None
            try:
                rank.stdin.write(f"{number}\n")
                rank.stdin.flush()
            except BrokenPipeError:
                pass  # it has ended: reading its report says why
        reports = self._reports()
        losses = zip(*(report["losses"] for report in reports), strict=True)
        return max(report["seconds"] for report in reports), [sum(each) / len(reports) for each in losses]

    def cpu_seconds(self) -> float:
        """Time on a core of all its processes so far."""
        times = [psutil.Process(rank.pid).cpu_times() for rank in self._ranks]
        return sum(t.user + t.system for t in times)

    def close(self) -> None:
        for rank in self._ranks:
            rank.kill()
            rank.communicate()

    def _reports(self) -> list[dict[str, Any]]:
        reports = []
        for rank in self._ranks:
            assert rank.stdout is not None
            # One line is all that a rank says until it is told to go on, so none can wait in a buffer behind another.
            answered, _, _ = select.select([rank.stdout], [], [], _ANSWER_S)
            if not answered:
                raise Failed(f"no report within {_ANSWER_S:g} s")
            line = rank.stdout.readline()
            try:
                reports.append(json.loads(line))
            except ValueError:
                said = self.log.read_text(errors="replace").strip().splitlines()
                raise Failed(said[-1] if said else f"ended with {rank.wait()}") from None
        return reports
