"""A long run whose ranks are killed at random, with exponential gaps: what share of the paid time was useful?

*Useful* is the time that the kept steps take undisturbed: their number times the mean step, without the first few of an
attempt. It is divided by the time from the begin of the first step to the end of the last. Beside it stands what the
exact formula says (Daly 2006) when it is fed with the measured step and restart: a system that does not fit its own
formula has a loss that nobody has booked.
"""

import json
import os
import random
import re
import shutil
import signal
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from argosy.drill.scene import Launcher, Stage
from argosy.errors import Exit, StoppedError, UsageError
from argosy.policy.save import daly_wall_s
from argosy.registry.run_folder import RunFolder
from argosy.resilience.incident import read_incidents
from argosy.resilience.signs import SignReader

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_POLL_S = 0.05
LEAST_FIT = 0.97
_SETTLED = 3
"""First steps of an attempt, which fill caches."""


@dataclass(frozen=True)
class Soaked:
    """What came of it."""

    run: str
    seed: int
    seconds: float
    mean_gap_s: float
    kills: int
    incidents: int
    steps: int
    step_s: float
    """Mean of the undisturbed ones."""
    restart_s: float | None
    """Mean from the last sign of life to the end of the next completed step, beyond what a step takes."""
    useful_share: float
    formula_share: float | None
    exit_code: int
    supervisor_share: float
    """Of one core, that the launcher took while the ranks trained."""

    @property
    def fit(self) -> float | None:
        return None if self.formula_share is None else self.useful_share / self.formula_share

    @property
    def exit(self) -> Exit:
        good = self.incidents == self.kills and (self.fit is None or self.fit >= LEAST_FIT)
        return Exit.DONE if good and self.exit_code == Exit.START_AGAIN else Exit.CHECK_SAYS_NO

    def to_json_object(self) -> dict[str, Any]:
        return {"schema": "argosy.soak/1", "fit": self.fit} | asdict(self)

    def lines(self) -> list[str]:
        said = [
            f"{self.kills} kills in {self.seconds:.0f} s (mean gap asked {self.mean_gap_s:g} s), seed {self.seed}",
            f"{self.incidents} incidents, {self.steps} steps kept, {self.step_s * 1000:.0f} ms each",
            f"useful share from the first step on: {self.useful_share:.1%}",
        ]
        if self.formula_share is not None and self.restart_s is not None:
            said.append(
                f"formula, with a restart of {self.restart_s:.2f} s: {self.formula_share:.1%}; measured is "
                f"{self.fit:.3f} of it"
            )
        said.append(f"the launcher took {self.supervisor_share:.2%} of a core")
        return said


def seconds(text: str, *, least: float = 1.0) -> float:
    """``90s``, ``30m``, ``2h`` or a plain number of seconds. Raises UsageError for anything else, or below `least`."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) * _UNITS[match[2] or "s"] < least:
        raise UsageError(f"{text!r} is no duration", where="--soak / --mean-gap", do="write 90s, 30m or 2h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def kill_times(duration_s: float, mean_gap_s: float, chance: random.Random) -> Iterator[float]:
    """Seconds from the beginning, with exponential gaps, below `duration_s`; none with a mean gap of 0."""
    at_s = 0.0
    while mean_gap_s and (at_s := at_s + chance.expovariate(1 / mean_gap_s)) < duration_s:
        yield at_s


def run(stage: Stage, duration_s: float, mean_gap_s: float, seed: int) -> Soaked:
    """Train for `duration_s` from the first step on, and kill a random rank at each of the drawn times.

    A mean gap of 0 is a clean soak: no kill, so each incident is a false alarm.
    """
    chance = random.Random(seed)
    folder = stage.folder / f"soak-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    orders = folder.with_suffix(".orders")
    orders.mkdir(parents=True, exist_ok=True)
    # far more steps than there is time for; the soak ends it
    sets = [one for one in stage.settings(None) if not one.startswith("objective.tokens")]
    sets += ["objective.tokens=100000000000", "checkpoint.every_steps=200", "schedule.kind='constant'"]
    launcher = Launcher(stage, folder, sets, orders)
    kills = 0
    try:
        _wait_for_steps(folder, stage.nproc, launcher, 1)
        began, cpu_s = time.monotonic(), _cpu_s(launcher.process.pid)
        for at_s in kill_times(duration_s, mean_gap_s, chance):
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            kills += _kill_one(folder, stage.nproc, chance)
        time.sleep(max(0.0, began + duration_s - time.monotonic()))
        share = (_cpu_s(launcher.process.pid) - cpu_s) / (time.monotonic() - began)
        launcher.process.send_signal(signal.SIGINT)
        code = launcher.wait()
    finally:
        if launcher.process.poll() is None:
            launcher.process.kill()
            launcher.process.wait()
    return _measured(folder, seed, duration_s, mean_gap_s, kills, code, share)


def _wait_for_steps(folder: Path, nproc: int, launcher: Launcher, steps: int) -> None:
    while launcher.process.poll() is None:
        if len(_pids(folder, nproc, steps)) == nproc:
            return
        time.sleep(_POLL_S)
    raise StoppedError(f"the run ended before its first step: {launcher.said[-800:]}", where=str(folder))


def _pids(folder: Path, nproc: int, steps: int) -> list[int]:
    """Processes of the newest attempt's ranks that have done so many steps."""
    run = RunFolder(folder)
    attempts = run.attempts() if folder.exists() else []
    if not attempts:
        return []
    with SignReader({rank: run.heartbeat_file(attempts[-1], rank) for rank in range(nproc)}) as reader:
        beats = [reader.read(rank).beat for rank in range(nproc)]
    return [beat.pid for beat in beats if beat is not None and beat.steps >= steps]


def _kill_one(folder: Path, nproc: int, chance: random.Random) -> int:
    """Kill one rank of the newest attempt, whatever it does; 0 when none was there to be killed."""
    pids = _pids(folder, nproc, 0)
    if not pids:
        return 0
    try:
        os.kill(chance.choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def _cpu_s(pid: int) -> float:
    """Processor time of the process itself, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measured(
    folder: Path, seed: int, duration_s: float, mean_gap_s: float, kills: int, code: int, share: float
) -> Soaked:
    times: dict[int, tuple[int, int]] = {}
    undisturbed_ns: list[int] = []
    first_ns = None
    for file in sorted(folder.glob("events/attempt-*/rank-0.jsonl"), key=lambda file: int(file.parent.name[8:])):
        done = 0
        for line in file.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record.get("k") == "step":
                first_ns = record["t0"] if first_ns is None else first_ns
                times[record["s"]] = (record["t0"], record["t1"])
                done += 1
                if done > _SETTLED:
                    undisturbed_ns.append(record["t1"] - record["t0"])
    if first_ns is None or not undisturbed_ns:
        raise StoppedError("no step was recorded", where=str(folder))
    step_s = statistics.mean(undisturbed_ns) / 1e9
    wall_s = (max(t1 for _, t1 in times.values()) - first_ns) / 1e9
    incidents = read_incidents(folder / "incidents")
    restarts = [
        sum(one.phases.values()) - step_s + (one.silent_s or 0.0) for one in incidents if "first_step" in one.phases
    ]
    restart_s = statistics.mean(restarts) if restarts else None
    formula = None
    if restart_s is not None and kills:
        # a snapshot each step is part of the step; a restart undoes the step under way, half of it on average
        formula = 1 / (daly_wall_s(1.0, step_s, 0.0, restart_s, wall_s / kills))
    return Soaked(
        run=str(folder),
        seed=seed,
        seconds=duration_s,
        mean_gap_s=mean_gap_s,
        kills=kills,
        incidents=len(incidents),
        steps=len(times),
        step_s=step_s,
        restart_s=restart_s,
        useful_share=len(times) * step_s / wall_s,
        formula_share=formula,
        exit_code=code,
        supervisor_share=share,
    )
