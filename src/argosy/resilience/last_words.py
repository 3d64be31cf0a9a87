"""What a rank says before it dies of an exception, in a file that the supervisor reads.

The first exception in time is seldom the first cause: a rank whose peer died complains at once about its connection,
while the peer may still be writing its traceback. So each says whether it fell over somebody else.
"""

import json
import re
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

_OF_A_PEER = re.compile(
    r"connection (closed|reset|refused)|broken pipe|gloo/transport|timed out waiting|socket (closed|timeout)"
    r"|nccl.*(remote|abort|timeout)|peer (has )?(gone|left)|software caused connection abort|recvbytes|sendbytes",
    re.IGNORECASE,
)
TRACE_CHARACTERS = 8_000


@dataclass(frozen=True)
class LastWords:
    """The exception that ended a rank."""

    rank: int
    error: str
    """Type and first line."""
    trace: str
    consequence: bool
    """It complains about a connection: somebody else went first."""
    at_ns: int
    blames: int | None = None
    """Another rank that this error names as its cause, when it knows."""
    kind: str | None = None
    """Class of the fault, when the error knows (``desync``, ``corrupted_state``, …)."""
    good_until: int | None = None
    """The state after this many updates is above suspicion; later ones are not."""
    bad_until: int | None = None
    """Last step whose batch is to be left out when the run goes back there."""


def write_last_words(file: Path, rank: int, error: BaseException) -> LastWords:
    """Record `error`, whole or not at all; returns what was written."""
    first_line = (str(error).splitlines() or [""])[0][:500]
    words = LastWords(
        rank=rank,
        error=f"{type(error).__name__}: {first_line}",
        trace="".join(traceback.format_exception(error))[-TRACE_CHARACTERS:],
        consequence=_is_consequence(error),
        at_ns=time.monotonic_ns(),
        blames=getattr(error, "guilty_rank", None),
        kind=getattr(error, "fault_class", None),
        good_until=getattr(error, "good_until", None),
        bad_until=getattr(error, "bad_until", None),
    )
    partial = file.with_suffix(".tmp")
    partial.write_text(json.dumps(asdict(words)), encoding="utf-8")
    partial.replace(file)
    return words


def read_last_words(file: Path) -> LastWords | None:
    """None when the rank said nothing."""
    try:
        return LastWords(**json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def last_words_file(attempt_folder: Path, rank: int) -> Path:
    return attempt_folder / f"rank-{rank}.error.json"


def _is_consequence(error: BaseException) -> bool:
    """Whether the innermost cause is a broken connection or a wait in vain."""
    while error.__cause__ is not None:
        error = error.__cause__
    named = type(error).__name__ in ("DistNetworkError", "DistBackendError", "ConnectionResetError", "BrokenPipeError")
    return named or (isinstance(error, RuntimeError) and _OF_A_PEER.search(str(error)) is not None)
