"""One trial: a real run in a process tree of its own, one fault, and everything that can be seen from outside."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argosy.drill.faults import Variant
from argosy.drill.saboteur_order import ALL, FOLDER, Order
from argosy.errors import Exit, StoppedError
from argosy.journal.heartbeat import Beat
from argosy.journal.phys import PHYS
from argosy.registry.run_folder import RunFolder
from argosy.resilience.incident import Incident, read_incidents
from argosy.resilience.signs import Sign, SignReader

PATIENCE_S = 240.0
_POLL_S = 0.0005


@dataclass(frozen=True)
class Stage:
    """What all trials of a drill share."""

    folder: Path
    recipe: Path
    nproc: int
    steps: int
    sets: tuple[str, ...]

    def settings(self, variant: Variant | None) -> list[str]:
        """Overrides of the recipe: short, saved often, a snapshot each step, no evaluation in between."""
        own = [
            f"objective.tokens={max(self.steps, variant.steps if variant else 0) * self._batch_tokens}",
            "eval.every_steps=0",
            "eval.final_tokens=2048",
            "checkpoint.every_steps=10",
            "checkpoint.keep_last=3",
            "checkpoint.snapshot_every_steps=1",
            "resilience.digest_every_steps=5",
            *self.sets,
        ]
        more = [] if variant is None else [text.format(nproc=self.nproc) for text in variant.sets]
        return own + more

    @property
    def _batch_tokens(self) -> int:
        from argosy.recipe.load import load_recipe

        return load_recipe(self.recipe, list(self.sets)).batch.tokens


@dataclass
class Seen:
    """What happened in a trial."""

    run: Path
    guilty: int
    fault_ns: int | None = None
    exits: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    wall_s: float = 0.0
    """Of the launcher's processes, all together."""
    left_processes: list[str] = field(default_factory=list)
    left_files: list[str] = field(default_factory=list)
    skipped: str | None = None
    """Why the fault cannot be made on this machine."""

    @property
    def incidents(self) -> list[Incident]:
        return read_incidents(self.run / "incidents")


class Launcher:
    """The launcher's process of a trial."""

    def __init__(self, stage: Stage, run: Path, sets: list[str], orders: Path):
        self._began = time.monotonic()
        self._log = run.with_suffix(".log")
        command = [sys.executable, "-m", "argosy.drill.agent", str(stage.recipe), str(run), str(stage.nproc), *sets]
        with self._log.open("ab") as stream:
            self.process = subprocess.Popen(
                command,
                stdout=stream,
                stderr=stream,
                stdin=subprocess.DEVNULL,
                env=os.environ | {FOLDER: str(orders)},
                process_group=0,
            )

    def wait(self, limit_s: float = PATIENCE_S) -> int:
        """Its exit code; a signal's number is negative. A launcher that does not end is killed: StoppedError."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise StoppedError(f"the launcher did not end within {limit_s:g} s", where=str(self._log)) from None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")


def play(stage: Stage, variant: Variant, run: Path, chance: random.Random) -> Seen:
    """Run the trial to its end. The guilty rank and the step are drawn here and told to nobody else."""
    orders = run.with_suffix(".orders")
    for left in (run, orders):
        shutil.rmtree(left, ignore_errors=True)
    orders.mkdir(parents=True)
    guilty = chance.randrange(stage.nproc)
    step = chance.randrange(*_window(variant, max(stage.steps, variant.steps)))
    seen = Seen(run, guilty)
    sets = stage.settings(variant)
    if variant.act is not None:
        delay_s = chance.choice((0.0, 0.0, 1.0)) if variant.act == "raise" else 0.0
        rank = guilty if variant.names_rank else ALL
        Order(variant.act, rank, step, variant.phase, variant.times, variant.every, variant.seconds, delay_s).write(
            orders
        )
    for number, expected in enumerate(variant.exits):
        launcher = Launcher(stage, run, sets, orders)
        try:
            if number == 0 and variant.outside is not None:
                _act(stage, variant, launcher, seen, step)
            seen.exits.append(launcher.wait())
        finally:
            seen.wall_s += launcher.seconds
            seen.said.append(launcher.said[-4000:])
        if seen.exits[-1] != expected and expected != Exit.INTERRUPTED:
            break
    done = [file.read_text().split()[0] for file in orders.glob("done-*")]
    if done:
        seen.fault_ns = min(map(int, done)) + int(delay_s * 1e9)
    if seen.fault_ns is None and seen.skipped is None:
        said = seen.said[-1].strip().splitlines() if seen.said else []
        raise StoppedError(
            f"{variant.id} was never made: the run ended before ({said[-1] if said else 'without a word'})",
            where=str(run),
            do="give more --steps",
        )
    _look_around(seen, orders)
    return seen


def undisturbed(stage: Stage, variant: Variant) -> Path:
    """The run of the same settings without a fault; made once."""
    settings = stage.settings(variant)
    key = f"{abs(hash_of(settings)):016x}"
    run = stage.folder / f"twin-{key}"
    if not (run / "run.json").exists() or not _finished(run):
        shutil.rmtree(run, ignore_errors=True)
        orders = run.with_suffix(".orders")
        orders.mkdir(parents=True, exist_ok=True)
        launcher = Launcher(stage, run, settings, orders)
        if launcher.wait() != Exit.DONE:
            raise StoppedError(f"the undisturbed run failed: {launcher.said[-800:]}", where=str(run))
    return run


def hash_of(settings: list[str]) -> int:
    import xxhash

    return xxhash.xxh3_64("\n".join(settings).encode()).intdigest()


def _finished(run: Path) -> bool:
    from argosy.launch.attempt import last_end

    end = last_end(RunFolder(run))
    return end is not None and end["exit"] == Exit.DONE


def _window(variant: Variant, steps: int) -> tuple[int, int]:
    """Steps in which the fault may fall: after the first, so that there is a median, and before the last save."""
    if variant.act == "poison":
        return steps * 2 // 3, steps * 3 // 4
    if variant.phase.startswith("ckpt"):
        return 8, 9
    return 6, max(7, steps * 2 // 3)


# -- acting from outside -------------------------------------------------------------------------------


def _act(stage: Stage, variant: Variant, launcher: Launcher, seen: Seen, step: int) -> None:
    if variant.outside == "memory_limit":
        _limit_memory(stage, launcher, seen)
        return
    beat = _await(stage, launcher, seen.run, 1, seen.guilty, variant.phase, step)
    if beat is None:
        return
    match variant.outside:
        case "kill":
            _signal(seen, beat.pid, signal.SIGKILL)
        case "freeze":
            _signal(seen, beat.pid, signal.SIGSTOP)
        case "freeze_and_wake":
            _signal(seen, beat.pid, signal.SIGSTOP)
            _wait_until(lambda: bool(seen.incidents), launcher)
            with contextlib.suppress(ProcessLookupError):
                os.kill(beat.pid, signal.SIGCONT)
        case "kill_agent":
            _signal(seen, launcher.process.pid, signal.SIGKILL)
        case "term_agent":
            _signal(seen, launcher.process.pid, signal.SIGTERM)
            time.sleep(0.05)
            _signal(seen, launcher.process.pid, signal.SIGTERM)
        case "term_rank":
            _signal(seen, beat.pid, signal.SIGTERM)
    if variant.again_in is not None:
        again = _await(stage, launcher, seen.run, 2, seen.guilty, variant.again_in, 0)
        if again is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(again.pid, signal.SIGKILL)


def _signal(seen: Seen, pid: int, number: int) -> None:
    """Send it, and note when; the first one is the fault."""
    seen.fault_ns = seen.fault_ns or time.monotonic_ns()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _await(stage: Stage, launcher: Launcher, run: Path, attempt: int, rank: int, phase: str, step: int) -> Beat | None:
    """The rank's sign when it is in `phase`, in `step` or later; None when the launcher ends before."""
    wanted = PHYS.index(phase.split()[0])
    page = RunFolder(run).heartbeat_file(attempt, rank)
    give_up = time.monotonic() + PATIENCE_S
    with SignReader({rank: page}) as reader:
        while time.monotonic() < give_up and launcher.process.poll() is None:
            beat = _beat(reader.read(rank))
            if beat is not None and beat.step >= step and wanted in (beat.phase, beat.span):
                if phase.endswith("later"):
                    time.sleep(0.01)
                return beat
            time.sleep(_POLL_S)
    return None


def _beat(sign: Sign) -> Beat | None:
    return sign.beat


def _wait_until(condition: Any, launcher: Launcher) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up and launcher.process.poll() is None and not condition():
        time.sleep(0.01)


def _limit_memory(stage: Stage, launcher: Launcher, seen: Seen) -> None:
    """Put the guilty rank's process into a control group that allows it 64 MiB more than it has."""
    from argosy.drill.cgroup import confine

    beat = _await(stage, launcher, seen.run, 1, seen.guilty, "forward", 3)
    if beat is not None:
        seen.skipped = confine(beat.pid, 64 << 20)


# -- afterwards ----------------------------------------------------------------------------------------


def _look_around(seen: Seen, orders: Path) -> None:
    """Processes and files that the run should have taken with it; the kernel gets a moment for the last of them."""
    give_up = time.monotonic() + 5
    while (left := _descendants(orders)) and time.monotonic() < give_up:
        time.sleep(0.05)
    seen.left_processes = left
    seen.left_files = [str(file) for file in seen.run.rglob("*.tmp*")]


def _descendants(orders: Path) -> list[str]:
    """Processes of this trial that live: they have its folder in their environment."""
    mark = f"{FOLDER}={orders}\0".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() + b"\0" and int(folder.name) != os.getpid():
                found.append(f"{folder.name} {(folder / 'comm').read_text().strip()}")
        except OSError:
            continue
    return found


def read_report(run: Path) -> dict[str, Any]:
    """The books as the user gets them."""
    command = [sys.executable, "-c", "from argosy.cli.main import main; main()", "report", str(run), "--json"]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        raise StoppedError(f"argosy report failed: {answer.stderr.strip()[-400:]}", where=str(run))
    report: dict[str, Any] = json.loads(answer.stdout)
    return report
