"""What a run learned, step by step: the figures that must come out again when it is repeated."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from argosy.journal.reader import JournalFile, read_run

FIELDS = ("loss", "grad_norm", "lr", "loss_tokens", "skipped")


@dataclass(frozen=True)
class StepFigures:
    """One step of the line that led to the model; floats as the journal holds them, to the last bit."""

    loss: float
    """Nats per token over the global batch. nan where unknown, and so is `grad_norm`."""
    grad_norm: float
    lr: float
    loss_tokens: int
    skipped: bool


@dataclass(frozen=True)
class LineOfSteps:
    """A run's line, of its last visit to each step."""

    steps: dict[int, StepFigures]
    evals: dict[int, float]
    """Evaluation loss after so many updates."""
    world_sizes: frozenset[int]
    code: frozenset[str]
    """Versions that trained it."""
    layouts: frozenset[str]
    """Axes of more than one rank, such as ``dp 2``."""
    data_digest: str | None


@dataclass(frozen=True)
class Difference:
    """The first step at which two lines differ, and in what."""

    step: int
    field: str
    was: Any
    now: Any

    def __str__(self) -> str:
        what = (
            f"evaluation after {self.step} steps" if self.field == "evaluation" else f"step {self.step}, {self.field}"
        )
        return f"{what}: {self.was!r} then, {self.now!r} now"


def line_of_steps(run: Path) -> LineOfSteps:
    """The line of the run in folder `run`, over all attempts. Raises InputError when it is no run."""
    journal = read_run(run)
    steps: dict[int, StepFigures] = {}
    evals: dict[int, float] = {}
    digest = None
    leaders = {file.attempt: file for file in reversed(journal.ranks)}  # by attempt and rank: the lowest rank stays
    for attempt in sorted(leaders):
        file = leaders[attempt]
        steps |= _steps(file)
        evals |= {row["s"]: row["loss"] for row in file.of_kind("eval") if row.get("loss") is not None}
        digest = next((row.get("digest") for row in file.of_kind("corpus")), digest)
    return LineOfSteps(
        steps=dict(sorted(steps.items())),
        evals=dict(sorted(evals.items())),
        world_sizes=frozenset(int(file.header["world"]) for file in leaders.values()),
        code=frozenset(str(file.header.get("code")) for file in leaders.values()),
        layouts=frozenset(_axes(file.header.get("layout") or {}) for file in leaders.values()),
        data_digest=digest,
    )


def first_difference(was: LineOfSteps, now: LineOfSteps) -> Difference | None:
    """The first step that is not bit-equal, among those that both have; None when all are."""
    for step, before in was.steps.items():
        after = now.steps.get(step)
        if after is None:
            continue
        old, new = asdict(before), asdict(after)
        for field in FIELDS:
            if not _equal(old[field], new[field]):
                return Difference(step, field, old[field], new[field])
        if step + 1 in was.evals and step + 1 in now.evals and not _equal(was.evals[step + 1], now.evals[step + 1]):
            return Difference(step + 1, "evaluation", was.evals[step + 1], now.evals[step + 1])
    return None


def largest_departure(was: LineOfSteps, now: LineOfSteps, stretch: int) -> tuple[float, int]:
    """The largest relative difference of the loss averaged over `stretch` steps, or of an evaluation, and its step."""
    common = [step for step in was.steps if step in now.steps]
    worst, where = 0.0, common[0] if common else 0
    pairs = [(step, was.evals[step], now.evals[step]) for step in was.evals if step in now.evals]
    for begin in range(0, len(common), stretch):
        part = common[begin : begin + stretch]
        before, after = (math.fsum(line.steps[step].loss for step in part) for line in (was, now))
        pairs.append((part[-1], before, after))
    for step, before, after in pairs:
        departure = abs(after - before) / abs(before) if before else math.inf
        if not departure <= worst:
            worst, where = departure, step
    return worst, where


def _axes(layout: dict[str, Any]) -> str:
    sizes = {axis: layout[axis] for axis in ("dp", "fsdp", "cp", "tp", "pp", "ep") if layout.get(axis, 1) != 1}
    return " ".join(f"{axis} {size}" for axis, size in sizes.items()) or "undivided"


def _equal(a: Any, b: Any) -> bool:
    return a == b or (a != a and b != b)


def _steps(file: JournalFile) -> dict[int, StepFigures]:
    columns = file.steps
    rows = zip(
        columns.step.tolist(),
        columns.loss.tolist(),
        columns.grad_norm.tolist(),
        columns.lr.tolist(),
        columns.tokens[:, 0].tolist() if len(columns) else [],
        columns.skipped.tolist(),
        strict=True,
    )
    return {step: StepFigures(*figures) for step, *figures in rows}
