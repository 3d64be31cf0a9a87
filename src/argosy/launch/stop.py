"""Asking a run to stop, from outside."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.errors import Exit, StoppedError, UsageError
from argosy.launch.attempt import last_end
from argosy.registry.run_folder import Locked, RunFolder

_LOOK_S = 0.05


@dataclass(frozen=True)
class Stopped:
    """How the run ended after it was asked to."""

    run: Path
    attempt: int
    exit: Exit
    reason: str | None
    checkpoint: str | None
    """Newest committed checkpoint, such as ``step-400``."""

    def to_json_object(self) -> dict[str, Any]:
        """Stable keys for `--json`."""
        return {
            "schema": "argosy.stop/1",
            "run": str(self.run),
            "attempt": self.attempt,
            "exit": int(self.exit),
            "stop_reason": self.reason,
            "checkpoint": self.checkpoint,
        }


def stop(path: Path, timeout_s: float) -> Stopped:
    """Ask the run in `path` to save and stop at its next step, and wait until its launcher has ended.

    Raises UsageError when nothing trains it, StoppedError when it has not ended after `timeout_s`.
    """
    run = RunFolder.open(path)
    if not is_running(run):
        raise UsageError("is not being trained, so there is nothing to stop", where=str(path))
    request_stop(run, "argosy stop")
    give_up = time.monotonic() + timeout_s
    while is_running(run):
        if time.monotonic() > give_up:
            raise StoppedError(
                f"has not stopped within {timeout_s:g} s",
                where=str(path),
                do="it stays asked to stop: wait for the step to end, or look whether its ranks hang",
            )
        time.sleep(_LOOK_S)
    end = last_end(run) or {}
    return Stopped(
        run=run.path,
        attempt=run.attempts()[-1],
        exit=Exit(end.get("exit", Exit.NEEDS_PERSON)),
        reason=end.get("reason"),
        checkpoint=newest_checkpoint(run),
    )


def request_stop(run: RunFolder, why: str) -> None:
    """Leave the file that rank 0 looks for at each step; `why` becomes part of the stop reason."""
    partial = run.control / f".stop.{os.getpid()}"
    partial.write_text(why + "\n", encoding="utf-8")
    partial.replace(run.control / "stop")


def clear_stop(run: RunFolder) -> None:
    """Remove a request that an earlier attempt left behind."""
    (run.control / "stop").unlink(missing_ok=True)


def is_running(run: RunFolder) -> bool:
    """Whether a launcher holds the run."""
    try:
        with run.lock():
            return False
    except Locked:
        return True


def newest_checkpoint(run: RunFolder) -> str | None:
    """Name of the newest committed checkpoint: a folder gets its final name only when it is whole."""
    steps = [p.name.removeprefix("step-") for p in run.checkpoints.glob("step-*") if p.is_dir()]
    return max((f"step-{step}" for step in steps if step.isdecimal()), key=lambda n: int(n[5:]), default=None)
