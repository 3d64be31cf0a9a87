"""The stretch of time that a report is cut to."""

from datetime import UTC, datetime

from argosy.errors import UsageError

_FIRST, _LAST = 0, 2**62


def period(since: str | None, until: str | None) -> tuple[int, int] | None:
    """Wall-clock ns since the epoch, from and until; None without any limit. Raises UsageError."""
    if since is None and until is None:
        return None
    begin, end = _moment(since, "--since", _FIRST), _moment(until, "--until", _LAST)
    if begin >= end:
        raise UsageError("--since is not before --until", where=f"{since} … {until}", do="swap them")
    return begin, end


def _moment(text: str | None, option: str, default: int) -> int:
    if text is None:
        return default
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is no moment", where=option, do="write it as 2026-11-30T21:00 or 2026-11-30T22:00+01:00"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    since_epoch = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since_epoch.days * 86_400 + since_epoch.seconds) * 10**9 + since_epoch.microseconds * 1000
