"""Real processes are killed from outside at random moments; the run that goes on ends as its undisturbed twin.

The seed is printed; ``ARGOSY_CHAOS_SEED`` repeats a case.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from argosy.errors import Exit
from argosy.journal.heartbeat import Beat, State, read_beat
from argosy.registry.run_folder import RunFolder
from argosy.resilience.incident import read_incidents
from tiny_runs import RECIPE, digests, losses

ARGOSY = Path(sys.executable).with_name("argosy")
STEPS = 24
SETS = (f"objective.tokens={STEPS * 2048}", "eval.every_steps=0", "eval.final_tokens=4096", "checkpoint.every_steps=4")
PATIENCE_S = 120


def start(folder: Path) -> subprocess.Popen[str]:
    sets = [word for one in SETS for word in ("--set", one)]
    command = [str(ARGOSY), "train", str(RECIPE), "--nproc", "2", "--run-dir", str(folder), *sets]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(launcher: subprocess.Popen[str], expected: Sequence[int]) -> str:
    said = launcher.communicate(timeout=PATIENCE_S)[0]
    assert launcher.returncode in expected, said
    return said


def wait_for_step(launcher: subprocess.Popen[str], folder: Path, attempt: int, step: int) -> list[psutil.Process]:
    """Wait until both ranks of `attempt` have come to `step`; their processes."""
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        assert launcher.poll() is None, launcher.communicate()[0]
        beats = [_beat(RunFolder(folder).heartbeat_file(attempt, rank)) for rank in (0, 1)]
        alive = [beat for beat in beats if beat and beat.state == State.STEPPING and beat.step >= step]
        if len(alive) == 2:
            return [psutil.Process(beat.pid) for beat in alive]
        time.sleep(0.001)
    raise TimeoutError(f"attempt {attempt} did not come to step {step}")


def _beat(page: Path) -> Beat | None:
    return read_beat(page) if page.exists() and page.stat().st_size else None


def report(folder: Path) -> dict:
    return json.loads(subprocess.check_output([str(ARGOSY), "report", str(folder), "--json"], text=True))


@pytest.mark.chaos
@pytest.mark.dist
def test_a_run_that_is_killed_twice_ends_as_its_undisturbed_twin(tmp_path: Path) -> None:
    seed = int(os.environ.get("ARGOSY_CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"ARGOSY_CHAOS_SEED={seed}")
    chance = random.Random(seed)
    twin, run = RunFolder(tmp_path / "twin"), RunFolder(tmp_path / "run")
    finish(start(twin.path), [Exit.DONE])
    step_s = _median_step_s(twin)

    launcher = start(run.path)
    workers = wait_for_step(launcher, run.path, 1, chance.randrange(1, 11))
    time.sleep(chance.uniform(0, 2 * step_s))  # forward, backward, optimizer, a save: wherever it hits
    rank = chance.randrange(2)
    workers[rank].kill()

    workers = wait_for_step(launcher, run.path, 2, chance.randrange(13, 19))
    time.sleep(chance.uniform(0, 2 * step_s))
    launcher.send_signal(signal.SIGKILL)
    finish(launcher, [-signal.SIGKILL])
    assert _all_gone(workers), "a worker outlived its launcher"
    (incident,) = read_incidents(run.incidents)
    assert (incident.kind, incident.rank, incident.cause) == ("killed", rank, f"rank {rank} was killed by SIGKILL")

    finish(start(run.path), [Exit.DONE])
    assert run.attempts() == [1, 2, 3]
    assert losses(run) == losses(twin)
    assert sorted(losses(run)) == list(range(STEPS))
    assert digests(run, STEPS) == digests(twin, STEPS)

    books = report(run.path)
    accounts = {name: account["ns"] for name, account in books["accounts"].items()}
    assert sum(accounts.values()) == books["paid_ns"], "the books of three attempts do not sum"
    assert accounts["stability.lost_work"] > 0
    assert books["paid_ns"] > report(twin.path)["paid_ns"]
    assert "is finished" in finish(start(run.path), [Exit.DONE])


def _median_step_s(run: RunFolder) -> float:
    rows = [json.loads(line) for line in run.rank_file(1, 0).read_bytes().splitlines()]
    lengths = sorted(row["t1"] - row["t0"] for row in rows if row["k"] == "step")
    return lengths[len(lengths) // 2] / 1e9


def _all_gone(workers: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(workers, timeout=20)[1]
