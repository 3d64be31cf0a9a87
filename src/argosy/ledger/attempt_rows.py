"""The attempts of a run as rows of its report."""

import signal
from collections.abc import Mapping
from datetime import UTC, datetime

from argosy.errors import Exit
from argosy.journal.phys import STARTUP
from argosy.ledger.attempts import Source
from argosy.ledger.books import AttemptBooks, Books
from argosy.ledger.fate import DISCARDED, LOST, SKIPPED
from argosy.ledger.learning import Speed
from argosy.ledger.report_model import AttemptRow

_PHASES = ("no_process.before", "no_process.between", *STARTUP, "warmup", "detect", "teardown", "no_process.held")
"""What an attempt does besides its steps, in the order of time."""

_NO_STEP = Speed(visits=0, tokens=0, own_ns=0, step_time_s=None)


def attempt_rows(books: Books, leaders: Mapping[int, Source], speeds: Mapping[int, Speed]) -> list[AttemptRow]:
    """One row for each attempt, in order. `leaders` and `speeds` are by attempt; one without rank files has none."""
    return [
        _row(books, attempt, leaders.get(attempt.attempt), speeds.get(attempt.attempt, _NO_STEP))
        for attempt in books.attempts
    ]


def how_it_ended(attempt: AttemptBooks, *, is_last: bool, live: bool) -> str:
    """``running``, or how and why it ended."""
    if not attempt.ended:
        return "running" if is_last and live else "died: nobody wrote its end"
    reason = f": {attempt.end['reason']}" if attempt.end.get("reason") else ""
    killed_by, code = attempt.end.get("signal"), attempt.end.get("exit", Exit.DONE)
    if killed_by is not None:
        return f"killed by {signal.Signals(killed_by).name}{reason}"
    if code == Exit.DONE:
        return f"finished{reason}"
    if code == Exit.START_AGAIN:
        return f"stopped cleanly{reason}"
    return f"failed with exit code {code}{reason}"


def _row(books: Books, attempt: AttemptBooks, leader: Source | None, speed: Speed) -> AttemptRow:
    visits = books.visits
    mine = visits.attempt == attempt.attempt
    lost = mine & ((visits.fate == LOST) | (visits.fate == DISCARDED))
    restores = list(leader.file.of_kind("restore")) if leader else []
    return AttemptRow(
        attempt=attempt.attempt,
        started=datetime.fromtimestamp(attempt.start_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        world_size=attempt.world,
        paid_ns=sum(attempt.accounts.values()),
        phases={name.removeprefix("startup."): attempt.phys[name] for name in _PHASES if attempt.phys.get(name)},
        visits=int(mine.sum()),
        lost_visits=int(lost.sum()),
        skipped_visits=int((mine & (visits.fate == SKIPPED)).sum()),
        loss_tokens=int(visits.tokens[mine, 0].sum()),
        step_time_s=speed.step_time_s,
        tokens_per_s=speed.tokens_per_s,
        restored=f"step {restores[0]['to']}" if restores else None,
        ended=how_it_ended(attempt, is_last=attempt is books.attempts[-1], live=books.live),
    )
