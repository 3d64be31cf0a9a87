"""Documents before they are tokens, and which of them are held out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import xxhash


@dataclass(frozen=True)
class Document:
    """One text with a name that is unique in its corpus.

    ``split_key`` decides by its hash whether the document is held out.
    """

    name: str
    text: str
    split_key: bytes


@dataclass(frozen=True)
class Rejected:
    """A record that could not become a document, with its first bytes."""

    name: str
    reason: str
    beginning: bytes


class Corpus(Protocol):
    """A source that can be read several times with the same result each time."""

    @property
    def name(self) -> str: ...

    def __iter__(self) -> Iterator[Document | Rejected]: ...


def split_hash(document: Document) -> int:
    """Number in ``[0, 2^64)``; documents below ``share · 2^64`` are held out."""
    return xxhash.xxh3_64_intdigest(document.split_key)
