"""One attempt's beginning and end, as the launcher records them.

The launcher's journal file names the attempt's start and end; `paid.jsonl` says which devices were paid meanwhile.
Under torchrun and srun there is no launcher, and rank 0's process does the same (:mod:`argosy.launch.inline`).
"""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from argosy.errors import ArgosyError, Exit
from argosy.journal.clock import mono_ns, process_start_ns
from argosy.journal.reader import read_rows
from argosy.journal.schema import Header
from argosy.journal.writer import Writer
from argosy.launch.devices import Slots
from argosy.launch.paid import close_paid, declare_price, open_paid
from argosy.layout.layout import Layout
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder


class Attempt:
    """An open attempt. `exit`, `reason` and `signal` are what its end record will say; set them on the way."""

    def __init__(self, run: RunFolder, number: int, slots: Slots, journal: Writer):
        self.run = run
        self.number = number
        self.slots = slots
        self.journal = journal
        self.exit: Exit = Exit.NEEDS_PERSON
        self.reason: str | None = None
        """Why it ended: the workers' `stop_reason`, or what the launcher saw."""
        self.signal: int | None = None
        """The signal that killed the first worker to fail."""
        self.failed_rank: int | None = None
        """The first worker to fail."""
        self.paid_ns = 0
        """Device time paid for the attempt, once it is closed."""

    @contextmanager
    def span(self, phys: str) -> Iterator[None]:
        """Record that all devices of the attempt did `phys` meanwhile; a kill leaves the span open, not lost."""
        span = {"id": self.journal.last_seq + 1, "p": phys, "t0": mono_ns(), "t1": None}
        self.journal.put("span", span)
        yield
        self.journal.put("span", span | {"t1": mono_ns()})

    def fail(self, why: str, rank: int | None, signal: int | None, exit_code: int | None) -> None:
        """Note that the attempt ends because of this rank; `exit_code` is what the rank says of another start."""
        self.exit = Exit.NEEDS_PERSON if exit_code is None else Exit(exit_code)
        self.signal = signal
        self.reason = why
        self.failed_rank = rank


@contextmanager
def open_attempt(run: RunFolder, recipe: Recipe, layout: Layout, slots: Slots) -> Iterator[Attempt]:
    """Claim the next attempt and pay for `slots` until the block is left, however it is left.

    Records the header, start and end of the attempt, the price, the paid time and the plan. An exception ends the
    attempt with that exception's exit code and text.
    """
    number = run.claim_attempt()
    journal = Writer(run.agent_file(number, socket.gethostname()))
    attempt = Attempt(run, number, slots, journal)
    started_ns = open_paid(run, slots.names, process_start_ns(), hold=recipe.budget.hold == "reserved")
    declare_price(run, recipe.budget)
    header = Header.of_this_process(
        run.info.id,
        number,
        rank=None,
        world=layout.world_size,
        device=None,
        seed=recipe.run.seed,
        sample_every=recipe.journal.sample_every,
        layout=asdict(layout),
    )
    journal.put_all((("header", header.fields()), ("attempt", {"t": started_ns, "ph": "start"})))
    _write_plan(attempt, layout)
    try:
        yield attempt
    except BaseException as error:
        attempt.exit = error.exit_code if isinstance(error, ArgosyError) else Exit.NEEDS_PERSON
        attempt.reason = str(error) or type(error).__name__
        raise
    finally:
        end_ns = mono_ns()
        how = {"exit": int(attempt.exit), "signal": attempt.signal, "reason": attempt.reason}
        journal.put("attempt", {"t": end_ns, "ph": "end"} | {k: v for k, v in how.items() if v is not None})
        journal.close()
        close_paid(run, slots.names, end_ns)
        attempt.paid_ns = slots.count * (end_ns - started_ns)


def last_end(run: RunFolder) -> dict[str, Any] | None:
    """The end record of the run's newest attempt; None when there is none, or its launcher was killed."""
    attempts = run.attempts()
    if not attempts:
        return None
    ends = [
        record
        for file in sorted(run.attempt_folder(attempts[-1]).glob("agent-*.jsonl"))
        for record in read_rows(file)
        if record.get("k") == "attempt" and record.get("ph") == "end"
    ]
    return ends[-1] if ends else None


_TAIL_BYTES = 1 << 20
"""Of a rank's journal: what follows the decision to stop is a save, an evaluation and a sample."""


def stop_reason(run: RunFolder, attempt: int, rank: int = 0) -> str | None:
    """What a rank recorded as the reason to stop; None when it did not come to decide."""
    file = run.rank_file(attempt, rank)
    if not file.exists():
        return None
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _TAIL_BYTES))
        lines = stream.read().splitlines()
    for line in reversed(lines):
        if b'"decision"' in line and (record := _record(line)) is not None and record.get("what") == "stop":
            return record.get("reason")
    return None


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError:  # torn by a kill
        return None
    return record


def _write_plan(attempt: Attempt, layout: Layout) -> None:
    plan = {
        "schema": "argosy.plan/1",
        "recipe_hash": attempt.run.info.recipe_hash,
        "layout": asdict(layout),
        "cluster": {"host": socket.gethostname(), "accelerator": attempt.slots.kind, "count": attempt.slots.count},
        "predicted": {},
    }
    attempt.run.plan_file(attempt.number).write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
