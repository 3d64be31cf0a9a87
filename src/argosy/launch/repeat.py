"""`argosy repeat`: train a run again from its recipe, data and code, and compare step by step.

On the same kind of machine, with the same versions and world size, every figure must be equal to the last bit. Where
one of these differs only losses are compared, averaged over some steps, within the band of seeds: no farther apart than
runs of the same recipe with other seeds are.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from argosy import __version__
from argosy.errors import Exit, InputError, StoppedError
from argosy.launch.line_of_steps import Difference, LineOfSteps, first_difference, largest_departure, line_of_steps
from argosy.launch.live import LiveLine
from argosy.launch.local import train
from argosy.launch.seed_band import SeedBand, seed_band
from argosy.launch.stop import request_stop
from argosy.registry.run_folder import RunFolder, RunInfo, environment

STRETCH = 10
"""Steps over which losses are averaged before they are compared with a band."""
_COMPARE_EVERY_S = 5.0
_UNLIMITED = ("budget.money=", "budget.device_hours=", "budget.deadline_s=")
"""Limits of money and time end a run at a moment, not at a step; the run's own last step does it instead."""


@dataclass(frozen=True)
class Repetition:
    """What came out of it."""

    run: str
    repeated_in: str | None
    """Folder of the repetition; None when it is gone."""
    repeats: bool
    """Bit-equal, or within the band where no more can be asked."""
    exact: bool
    """Whether bit-equality was asked for."""
    why_not_exact: tuple[str, ...]
    """What differs from then, so that only the band was asked for."""
    steps: int
    """Steps that were compared."""
    evaluations: int
    first_difference: Difference | None
    departure: float
    """Largest relative difference of the loss over :data:`STRETCH` steps, or of an evaluation."""
    departure_step: int
    band: float
    band_source: str

    def to_json(self) -> str:
        """One object with stable keys."""
        return json.dumps({"schema": "argosy.repeat/1"} | asdict(self))

    def lines(self) -> list[str]:
        """For people."""
        seen = f"{self.steps:,} steps and {self.evaluations:,} evaluations"
        said = [f"not asked to be bit-equal: {reason}" for reason in self.why_not_exact]
        if self.first_difference is None:
            said.append(f"repeats: {seen} are bit-equal")
        else:
            said.append(f"first difference: {self.first_difference}")
            departure = f"losses differ by {self.departure:.3%} at most (at step {self.departure_step:,})"
            verdict = "repeats" if self.repeats else "does not repeat"
            asked = "bit-equality was asked for" if self.exact else f"the band is {self.band:.3%}: {self.band_source}"
            said.append(f"{verdict}: of {seen}, {departure}; {asked}")
        if self.repeated_in is not None:
            said.append(f"see  argosy report {self.repeated_in}")
        return said


def repeat(
    run_dir: Path,
    into: Path | None = None,
    *,
    band: float | None = None,
    stream: TextIO | None = None,
    worker_command: Sequence[str] | None = None,
) -> Repetition:
    """Train the run in `run_dir` again, in the new folder `into` or one that is removed when all is equal.

    `band` is the relative difference of losses that is allowed where bit-equality cannot be asked for; None: that of
    seeds.

    Raises InputError when the run has no step yet or its data are gone or changed, UsageError when `into` holds a run,
    StoppedError when the repetition ends early.
    """
    run = RunFolder.open(run_dir)
    was = line_of_steps(run_dir)
    if not was.steps:
        raise InputError("has no step yet, so there is nothing to repeat", where=str(run_dir))
    _check_data(run, was)
    folder = into or Path(tempfile.mkdtemp(prefix="argosy-repeat-")) / run.path.resolve().name
    world = max(was.world_sizes)
    live = _Comparison(stream, was, stops_at_difference=_could_be_exact(run.info, was))
    sets = [*_UNLIMITED, *([f"data.digest={was.data_digest}"] if was.data_digest else [])]
    outcome = train(run.recipe_file, sets, world, folder, live=live, worker_command=worker_command)
    now = line_of_steps(folder)
    steps = sum(step in now.steps for step in was.steps)
    if not live.enough and (outcome.exit != Exit.DONE or not steps):
        raise StoppedError(
            f"the repetition ended after {steps} of {len(was.steps)} steps: {outcome.reason}",
            where=str(folder),
            do="start it again with another --into",
        )
    changes = _changes(run.info, RunFolder.open(folder).info, was, now)
    difference = first_difference(was, now)
    departure, step = largest_departure(was, now, STRETCH)
    allowed = seed_band(run) if band is None else SeedBand(band, "as asked")
    repeats = difference is None if not changes else departure <= allowed.relative
    gone = repeats and into is None
    if gone:
        shutil.rmtree(folder.parent)
    return Repetition(
        run=str(run_dir),
        repeated_in=None if gone else str(folder),
        repeats=repeats,
        exact=not changes,
        why_not_exact=changes,
        steps=steps,
        evaluations=len(was.evals.keys() & now.evals.keys()),
        first_difference=difference,
        departure=departure,
        departure_step=step,
        band=allowed.relative,
        band_source=allowed.source,
    )


def _check_data(run: RunFolder, was: LineOfSteps) -> None:
    """Raises InputError when a data set of the run is no longer there; whether it is the same is seen at the start."""
    data = run.recipe().data
    for source in [one.folder for one in data.sources] or [data.source]:
        if source != "stdlib" and not Path(source).expanduser().is_dir():
            raise InputError(
                f"the data that the run was trained on are gone (digest of all its data: {was.data_digest})",
                where=source,
                do="put them back; built anew from the same text by `argosy data build` they have the same digest",
            )


class _Comparison(LiveLine):
    """Shows the progress of the repetition and stops it at the run's last step, or where a difference is found."""

    def __init__(self, stream: TextIO | None, was: LineOfSteps, *, stops_at_difference: bool):
        super().__init__(stream)
        self._was, self._stops_at_difference = was, stops_at_difference
        self._run: Path | None = None
        self._next_look = 0.0
        self.enough = False
        """It was stopped from here."""

    def follow(self, run: Path, attempt: int) -> None:
        super().follow(run, attempt)
        self._run = run

    def update(self) -> None:
        super().update()
        if self._run is None or self.enough or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _COMPARE_EVERY_S
        now = line_of_steps(self._run)
        past_the_end = max(now.steps, default=-1) > max(self._was.steps)
        if past_the_end or (self._stops_at_difference and first_difference(self._was, now)):
            self.enough = True
            request_stop(RunFolder(self._run), "the repetition has shown enough")


def _could_be_exact(then: RunInfo, was: LineOfSteps) -> bool:
    """Whether nothing has changed since, as far as is known before it runs."""
    same = all(then.environment.get(name) == now for name, now in environment().items() if name in ("machine", "torch"))
    return same and len(was.world_sizes) == 1 and was.code == {__version__}


def _changes(then: RunInfo, today: RunInfo, was: LineOfSteps, now: LineOfSteps) -> tuple[str, ...]:
    """What is not as it was, of what decides the last bits."""
    named: dict[str, tuple[Any, Any]] = {
        "argosy": (", ".join(sorted(was.code)), ", ".join(sorted(now.code))),
        "machine": (then.environment.get("machine", "unknown"), today.environment.get("machine", "unknown")),
        "torch": (then.environment.get("torch", "unknown"), today.environment.get("torch", "unknown")),
        "world size": (_numbers(was.world_sizes), _numbers(now.world_sizes)),
        "layout": (", ".join(sorted(was.layouts)), ", ".join(sorted(now.layouts))),
    }
    return tuple(f"{name} was {old}, is {new}" for name, (old, new) in named.items() if old != new)


def _numbers(values: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(values)))
