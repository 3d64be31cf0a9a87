"""Where a constant comes from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A publication; `note` says what to know before the constants are used."""

    authors: str
    year: int
    where: str
    note: str = ""
