"""A rank that is killed from outside in the middle of a backward pass leaves no trace in the result."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from argosy.errors import Exit
from argosy.launch.live import LiveLine
from argosy.launch.local import train as launch
from argosy.registry.run_folder import RunFolder
from argosy.resilience.incident import read_incidents
from tiny_runs import RECIPE, SMALL, digests, losses, make_run, train

WORKER = (sys.executable, str(Path(__file__).with_name("stalling_worker.py")))
REPLICAS = ("layout.dp=2", "layout.fsdp=1", "checkpoint.every_steps=2")


def kill_when_marked(mark: Path) -> None:
    give_up = time.monotonic() + 120
    while not (mark.exists() and mark.read_text()) and time.monotonic() < give_up:
        time.sleep(0.01)
    os.kill(int(mark.read_text()), signal.SIGKILL)


@pytest.mark.chaos
@pytest.mark.dist
def test_killed_inside_backward_and_mended_equals_its_twin(
    tmp_path: Path, run_ranks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("STALL_MARK", str(mark))
    sets, folder = (*SMALL, *REPLICAS), tmp_path / "run"
    killer = threading.Thread(target=kill_when_marked, args=(mark,))
    killer.start()
    outcome = launch(RECIPE, sets, 2, folder, live=LiveLine(None), worker_command=WORKER)
    killer.join()
    assert (outcome.exit, outcome.attempt) == (Exit.DONE, 2)
    (incident,) = read_incidents(folder / "incidents")
    assert (incident.kind, incident.rank, incident.cause) == ("killed", 0, "rank 0 was killed by SIGKILL")
    assert "backward" in (incident.phase or "")

    twin = make_run(tmp_path / "twin", *sets)
    assert train(run_ranks, twin, 2) == [Exit.DONE] * 2
    run = RunFolder.open(folder)
    assert losses(run) == losses(twin)
    last = max(losses(twin)) + 1
    assert digests(run, last) == digests(twin, last)
