"""`argosy train` on one machine: the agent that opens the run, starts its ranks, watches and closes the books."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from argosy.errors import Exit
from argosy.launch.attempt import Attempt, open_attempt, stop_reason
from argosy.launch.completion import completed
from argosy.launch.devices import Slots, resolve_slots
from argosy.launch.live import LiveLine
from argosy.launch.opening import opened
from argosy.launch.paid_before import paid_before_ns
from argosy.launch.preparation import prepare_data
from argosy.launch.signals import StopSignals
from argosy.launch.stop import newest_checkpoint, request_stop
from argosy.launch.workers import LogFollower, Workers, last_lines
from argosy.layout.fits import check_batch, check_model
from argosy.layout.layout import Layout
from argosy.recipe.load import load_recipe
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder

WORKER = (sys.executable, "-m", "argosy.training.worker")
GRACE_S = 1.0
"""From SIGTERM to SIGKILL, for the ranks that are left when one failed: they cannot save without it."""
LINGER_S = 60.0
"""How long ranks may take to follow the first that ended well."""
_LOOK_S = 0.5
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
    worker_command: Sequence[str] = WORKER,
) -> Outcome:
    """Train a recipe here until it ends or is stopped; start or continue the run in `run_dir` (``runs/NAME``).

    Everything that can be wrong with recipe, layout and folder raises before a process starts. What happens after
    that is in the outcome: DONE, START_AGAIN after a clean stop, or the code of the rank that failed.
    """
    recipe = load_recipe(recipe_path, sets)
    folder = run_dir or Path("runs", recipe.run.name)
    folder = next_free(folder) if new else folder
    recipe = completed(recipe, folder)
    slots = resolve_slots(recipe.run.device, nproc)
    layout = Layout.from_recipe(recipe.layout, slots.count)
    check_batch(layout, recipe.batch_sequences)
    check_model(layout, recipe.model, recipe.data.sequence_length, recipe.vocab_size)

    with opened(folder, recipe) as (run, finished):
        if finished is not None:
            return _finished(run, finished)
        with StopSignals() as signals:
            return _one_attempt(run, recipe, layout, slots, signals, live, worker_command)


def next_free(folder: Path) -> Path:
    """`folder` if no run is in it, else the first of ``folder-2``, ``folder-3``, … without one."""
    candidate, number = folder, 1
    while (candidate / "run.json").exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def _one_attempt(
    run: RunFolder,
    recipe: Recipe,
    layout: Layout,
    slots: Slots,
    signals: StopSignals,
    live: LiveLine,
    worker_command: Sequence[str],
) -> Outcome:
    paid_ns = paid_before_ns(run)
    with open_attempt(run, recipe, layout, slots) as attempt, Workers() as workers:
        live.say(f"{run.path}: attempt {attempt.number}, {slots.count} × {slots.kind}")
        with attempt.span("startup.data_seek"):
            data_folder = prepare_data(recipe, signals)
        if data_folder is None:
            attempt.exit, attempt.reason = Exit.START_AGAIN, "asked to stop before training began"
        else:
            options = {
                "--run-dir": run.path,
                "--attempt": attempt.number,
                "--paid-before-ns": paid_ns,
                "--data-folder": data_folder,
            }
            _start(workers, attempt, [*worker_command, *(str(word) for pair in options.items() for word in pair)])
            _watch(workers, attempt, signals, live)
            live.close()
    return Outcome(run.path, attempt.number, Exit(attempt.exit), attempt.reason, tuple(_advice(attempt)))


def _start(workers: Workers, attempt: Attempt, command: Sequence[str]) -> None:
    slots = attempt.slots
    for rank in range(slots.count):
        env = {
            "RANK": str(rank),
            "WORLD_SIZE": str(slots.count),
            "LOCAL_RANK": str(rank),
            "OMP_NUM_THREADS": str(slots.threads_each),
        }
        workers.start(rank, command, env, log_file(attempt.run, attempt.number, rank))


def _watch(workers: Workers, attempt: Attempt, signals: StopSignals, live: LiveLine) -> None:
    """Wait until all ranks have ended; when one fails, or does not follow the others, end the rest."""
    asked, give_up = False, float("inf")
    live.follow(attempt.run.path, attempt.number)
    lead = LogFollower(log_file(attempt.run, attempt.number, 0))
    while workers.running:
        ended = workers.wait(_LOOK_S, signals.fd)
        signals.drain()
        if signals.asked and not asked:
            asked = True
            request_stop(attempt.run, f"{signals.asked.name} to the launcher")
            live.say("stopping at the next step, saving first; a second signal changes nothing")
        failed = [end for end in ended if end.exit_code not in (Exit.DONE, Exit.START_AGAIN)]
        if failed:
            attempt.fail(failed[0])
            workers.terminate(GRACE_S)
            return
        for line in lead.new_lines():  # rank 0 speaks for all
            live.say(line)
        live.update()
        if ended:
            give_up = min(give_up, time.monotonic() + LINGER_S)
        if time.monotonic() > give_up:
            attempt.reason = f"ranks {workers.running} did not end within {LINGER_S:g} s of the first"
            workers.terminate(GRACE_S)
            return
    codes = {end.exit_code for end in workers.ended}
    attempt.exit = Exit.DONE if codes == {Exit.DONE} else Exit.START_AGAIN
    attempt.reason = stop_reason(attempt.run, attempt.number)


def log_file(run: RunFolder, attempt: int, rank: int) -> Path:
    """Where a rank's stdout and stderr go."""
    return run.attempt_folder(attempt) / f"rank-{rank}.log"


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
