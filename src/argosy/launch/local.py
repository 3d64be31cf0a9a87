"""`argosy train` on one machine: the agent that opens the run, starts its ranks, and goes on after a fault."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from argosy.errors import Exit
from argosy.hardware.catalogue import check_precision
from argosy.hardware.machine import this_machine
from argosy.launch.attempt import Attempt, open_attempt
from argosy.launch.completion import completed
from argosy.launch.devices import Slots, resolve_slots
from argosy.launch.janitor import sweep
from argosy.launch.limits import check_limits
from argosy.launch.live import LiveLine
from argosy.launch.opening import opened
from argosy.launch.paid_before import paid_before_ns
from argosy.launch.preparation import prepare_data
from argosy.launch.recovery import Recovery
from argosy.launch.restarts import Restarts
from argosy.launch.signals import StopSignals
from argosy.launch.starting import ENTRY, ColdStart, Starter, WarmStart
from argosy.launch.stop import newest_checkpoint
from argosy.launch.supervise import Failure, Supervisor, log_file
from argosy.launch.workers import Workers, last_lines
from argosy.layout.fits import check_batch, check_model
from argosy.layout.layout import Layout
from argosy.policy.action import Stop
from argosy.recipe.load import load_recipe
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder
from argosy.resilience.forkserver import Order, libc

_LOG_LINES = 15


@dataclass(frozen=True)
class Outcome:
    """What became of one `argosy train`."""

    run: Path
    attempt: int | None
    """None when nothing was started, since the run was finished."""
    exit: Exit
    reason: str | None
    said: tuple[str, ...]
    """For people: what happened and what to do next."""

    def to_json(self) -> str:
        """One line with stable keys."""
        return json.dumps(
            {
                "schema": "argosy.train/1",
                "run": str(self.run),
                "attempt": self.attempt,
                "exit": int(self.exit),
                "stop_reason": self.reason,
            }
        )


def train(
    recipe_path: Path,
    sets: Sequence[str] = (),
    nproc: int | None = None,
    run_dir: Path | None = None,
    *,
    new: bool = False,
    live: LiveLine,
    worker_command: Sequence[str] | None = None,
    entry: str = ENTRY,
) -> Outcome:
    """Train a recipe here until it ends or is stopped; start or continue the run in `run_dir` (``runs/NAME``).

    Everything that can be wrong with recipe, layout and folder raises before a process starts. After a fault all ranks
    start again, as the recipe's [resilience] allows. What comes of it is in the outcome: DONE, START_AGAIN after a
    clean stop, or the code of the rank that failed. Ranks are forked from a warm server, or are programs started with
    `worker_command` and the rank's arguments; `entry` is ``module:function``, what a forked rank calls.
    """
    recipe = load_recipe(recipe_path, sets)
    folder = run_dir or Path("runs", recipe.run.name)
    folder = next_free(folder) if new else folder
    recipe = completed(recipe, folder)
    slots = resolve_slots(recipe.run.device, nproc)
    if slots.kind == "cuda":
        check_precision(this_machine().accelerator, recipe.precision.compute)
    layout = Layout.for_recipe(recipe, slots.count)
    check_batch(layout, recipe.batch_sequences)
    check_model(layout, recipe.model, recipe.data.sequence_length, recipe.vocab_size)

    with opened(folder, recipe) as (run, finished):
        if finished is not None:
            return _finished(run, finished)
        check_limits(run, recipe)
        sweep(run)
        with StopSignals() as signals:
            starter = _starter(run, recipe, worker_command, entry)
            try:
                agent = _Agent(run, recipe, layout, slots, signals, live, starter)
                with contextlib.closing(agent.restarts):
                    return agent.train()
            finally:
                starter.close()


def next_free(folder: Path) -> Path:
    """`folder` if no run is in it, else the first of ``folder-2``, ``folder-3``, … without one."""
    candidate, number = folder, 1
    while (candidate / "run.json").exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def _starter(run: RunFolder, recipe: Recipe, worker_command: Sequence[str] | None, entry: str) -> Starter:
    if worker_command is not None:
        return ColdStart(worker_command)
    if not recipe.resilience.warm or not hasattr(libc, "prctl"):  # a fork would not become a child of this process
        return ColdStart()
    return WarmStart(run.path / "warm.log", entry)


class _Agent:
    """One launcher's attempts at a run."""

    def __init__(
        self,
        run: RunFolder,
        recipe: Recipe,
        layout: Layout,
        slots: Slots,
        signals: StopSignals,
        live: LiveLine,
        starter: Starter,
    ):
        self._run, self._recipe, self._layout, self._slots = run, recipe, layout, slots
        self._signals, self._live, self._starter = signals, live, starter
        self._paid_ns = paid_before_ns(run)
        self.restarts = Restarts(run, recipe, slots.count)
        self._recovery: Recovery | None = None
        self._data: Path | None = None

    def train(self) -> Outcome:
        while True:
            with open_attempt(self._run, self._recipe, self._layout, self._slots) as attempt, Workers() as workers:
                failure = self._attempt(attempt, workers)
                again = failure is not None and self._goes_on(attempt, failure)
                if not again:
                    self._starter.close()  # what it takes is paid for, like everything else
                    if attempt.exit != Exit.START_AGAIN:  # then the next start may want what is in memory
                        self.restarts.end_host()
            self._paid_ns += attempt.paid_ns
            if not again:
                self._live.close()
                said = tuple(_advice(attempt))
                return Outcome(self._run.path, attempt.number, Exit(attempt.exit), attempt.reason, said)

    def _attempt(self, attempt: Attempt, workers: Workers) -> Failure | None:
        self._live.say(f"{self._run.path}: attempt {attempt.number}, {self._slots.count} × {self._slots.kind}")
        if self._data is None:
            with attempt.span("startup.data_seek"):
                self._data = prepare_data(self._recipe, self._signals)
        if self._data is not None and not self._starter.warm:
            with attempt.span("startup.import"):
                self._starter.get_ready(self._signals.fd)
        if self._data is None or self._signals.asked:
            attempt.exit, attempt.reason = Exit.START_AGAIN, "asked to stop before training began"
            return None
        self._start(attempt, workers, self._data)
        if self._recovery is not None:
            self._recovery.started()
        supervisor = Supervisor(attempt, workers, self._signals, self._live, self._recipe.resilience, self._recovery)
        return supervisor.watch()

    def _start(self, attempt: Attempt, workers: Workers, data: Path) -> None:
        options = {
            "--run-dir": self._run.path,
            "--attempt": attempt.number,
            "--paid-before-ns": self._paid_ns,
            "--data-folder": data,
        }
        arguments = [str(word) for pair in options.items() for word in pair]
        orders = {}
        for rank in range(self._slots.count):
            env = {
                "RANK": str(rank),
                "WORLD_SIZE": str(self._slots.count),
                "LOCAL_RANK": str(rank),
                "OMP_NUM_THREADS": str(self._slots.threads_each),
            }
            orders[rank] = Order(arguments, env, log_file(self._run, attempt.number, rank))
        self._starter.start(workers, orders)

    def _goes_on(self, attempt: Attempt, failure: Failure) -> bool:
        """Whether there will be another attempt; what the policy says is noted in the incident."""
        action = self.restarts.decide(failure)
        rung = type(action).__name__
        self._recovery = Recovery(
            self._run,
            failure.incident,
            rung,
            devices=self._slots.count,
            step_s=failure.step_s,
            price_per_hour=self._recipe.budget.price_per_device_hour,
        )
        if isinstance(action, Stop):
            if failure.told is None:
                attempt.reason = f"{attempt.reason}; {action.reason}"
            return False
        if self._signals.asked:
            attempt.exit = Exit.START_AGAIN
            return False
        self._live.say(f"{attempt.reason}; all ranks start again")
        return True


def _finished(run: RunFolder, reason: str) -> Outcome:
    said = (f"{run.path} is finished: {reason}", "to train the recipe once more in a folder of its own, add --new")
    return Outcome(run.path, None, Exit.DONE, reason, said)


def _advice(attempt: Attempt) -> list[str]:
    run = attempt.run
    if attempt.exit == Exit.DONE:
        return [f"done: {attempt.reason or 'all ranks ended well'}", f"see  argosy report {run.path}"]
    if attempt.exit == Exit.START_AGAIN:
        return [f"stopped cleanly: {attempt.reason or 'as asked'}", "the same command continues it"]
    said = [f"stopped: {attempt.reason}"]
    failed = attempt.failed_rank
    if failed is not None:
        log = log_file(run, attempt.number, failed)
        said += [f"last lines of {log}:", *(f"  {line}" for line in last_lines(log, _LOG_LINES))]
    if attempt.exit in (Exit.USAGE, Exit.INPUT):
        return said  # the line above says what to mend; the same command would fail again
    checkpoint = newest_checkpoint(run)
    return [*said, f"the same command continues from {checkpoint}" if checkpoint else "no checkpoint was saved"]
