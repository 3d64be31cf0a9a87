"""Exit codes and the errors that a user sees.

An :class:`ArgosyError` carries what is wrong, where, and what to do, and prints as one line.
The command line turns it into that line on stderr and its exit code; a traceback appears only
with ``--debug``.
"""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command (INTERFACES 10)."""

    DONE = 0  # target, stop rule or budget reached; `stop_reason` says which
    CHECK_SAYS_NO = 1  # the check that was asked for says no
    USAGE = 64  # wrong usage or recipe
    INPUT = 66  # input missing or damaged
    NEEDS_PERSON = 70  # stopped; do not restart without a person
    START_AGAIN = 75  # stopped cleanly; the only code on which a scheduler requeues
    INTERRUPTED = 130  # interrupted outside training


class ArgosyError(Exception):
    """An error that a user can act on."""

    exit_code = Exit.NEEDS_PERSON

    def __init__(self, what: str, *, where: str | None = None, do: str | None = None):
        self.what = what
        self.where = where
        self.do = do
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f" → {self.do}" if self.do else ""
        return f"{place}{self.what}{remedy}"


class UsageError(ArgosyError):
    """Wrong option, recipe or combination of them."""

    exit_code = Exit.USAGE


class InputError(ArgosyError):
    """A file or folder that is missing, damaged or of another kind than was asked for."""

    exit_code = Exit.INPUT


class StoppedError(ArgosyError):
    """A run that cannot go on without a person."""

    exit_code = Exit.NEEDS_PERSON
