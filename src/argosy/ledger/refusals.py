"""What the ledger does with a record that cannot be true: refuse it, never clip it to something plausible."""

from dataclasses import dataclass, field

from argosy.errors import InputError
from argosy.journal.reader import JournalFile


class Refusal(InputError):
    """A record that contradicts another one or itself."""


@dataclass
class Refusals:
    """Raises at the first refusal, or, when `tolerant`, collects them; the caller then leaves the record out."""

    tolerant: bool = False
    found: list[str] = field(default_factory=list)

    def refuse(self, what: str, where: str) -> None:
        refusal = Refusal(what, where=where, do="mend or remove the record, or read the run tolerantly")
        if not self.tolerant:
            raise refusal
        self.found.append(f"{where}: {what}")


def record(file: JournalFile, seq: int) -> str:
    """The address of a record in messages."""
    return f"{file.name} record {seq}"
