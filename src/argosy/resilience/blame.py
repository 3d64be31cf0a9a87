"""Who was first: the earliest *causal* error among everything that happened at once.

A local error beats a complaint about a connection; a signal from outside beats an exit code; a rank that was found
hanging beats all, since the supervisor itself ends the others. Time stamps decide nothing: a log can be late.
"""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from argosy.errors import Exit
from argosy.resilience.incident import Class
from argosy.resilience.last_words import LastWords

_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
ENDED_WELL = (Exit.DONE, Exit.START_AGAIN)
TOLD = (Exit.USAGE, Exit.INPUT, Exit.NEEDS_PERSON)
"""Codes with which a rank says that another start would not help."""


@dataclass(frozen=True)
class End:
    """How one rank's process ended, with what is known of it."""

    rank: int
    exit_code: int | None
    signal: int | None
    how: str
    words: LastWords | None = None
    memory_kill: bool = False
    decided: bool = True
    """It had decided to stop: without that, an end with code 0 is no end of training."""


@dataclass(frozen=True)
class Cause:
    """The first cause of a failure."""

    kind: Class
    rank: int | None
    text: str
    detected_by: str = "exit"
    trace: str | None = None
    certain: bool = True
    """False: it looks like the consequence of something that has not been seen yet."""
    good_until: int | None = None
    """Updates after which the state is above suspicion; None: all of it is."""
    bad_until: int | None = None
    """Last step whose batch is to blame; None: no batch is."""


def first_cause(ends: Sequence[End]) -> Cause | None:
    """The cause among `ends`, in the order in which they were seen; None when none of them is a failure."""
    causes = [cause for end in ends if (cause := _cause(end)) is not None]
    return next((cause for cause in causes if cause.certain), causes[0] if causes else None)


def consequences(ends: Sequence[End], cause: Cause) -> tuple[str, ...]:
    """What the other ranks reported."""
    return tuple(
        f"rank {end.rank}: {end.words.error if end.words else end.how}"
        for end in ends
        if end.rank != cause.rank and _cause(end) is not None
    )


def _cause(end: End) -> Cause | None:
    name = f"rank {end.rank} {end.how}"
    if end.signal is not None:
        if end.memory_kill and end.signal == signal.SIGKILL:
            return Cause("out_of_memory", end.rank, f"{name}: its control group was out of memory")
        return Cause("native_crash" if end.signal in _CRASHES else "killed", end.rank, name)
    words = end.words
    if words is not None and end.exit_code not in TOLD:
        text = f"rank {end.rank}: {words.error}"
        guilty = end.rank if words.blames is None else words.blames
        if words.kind is not None:
            # All ranks say the same: who says it first is not to blame for it.
            by = _DETECTORS.get(words.kind, "exit")
            return Cause(
                words.kind,  # type: ignore[arg-type]
                words.blames,
                words.error,
                by,
                words.trace,
                good_until=words.good_until,
                bad_until=words.bad_until,
            )
        if "MemoryError" in words.error or "can't allocate memory" in words.error:
            return Cause("out_of_memory", end.rank, text, trace=words.trace)
        return Cause("exception", guilty, text, trace=words.trace, certain=not words.consequence)
    if end.exit_code in ENDED_WELL:
        return None if end.decided else Cause("left_early", end.rank, f"{name} before training had ended")
    return Cause("exception", end.rank, name)


_DETECTORS: Mapping[str, str] = {
    "desync": "collective guard",
    "corrupted_state": "digests",
    "non_finite": "local gradient",
    "loss_spike": "loss",
}
