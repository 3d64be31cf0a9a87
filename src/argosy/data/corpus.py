"""Documents before they are tokens, and which of them are held out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import xxhash
from numpy.typing import NDArray


@dataclass(frozen=True)
class Document:
    """One text with a name that is unique in its corpus.

    ``split_key`` decides by its hash whether the document is held out. ``spans`` are the characters
    ``[start, stop)``, ascending, that carry loss; None: all do. ``ids`` are its tokens where the source has them.
    """

    name: str
    text: str
    split_key: bytes
    spans: tuple[tuple[int, int], ...] | None = None
    ids: NDArray[Any] | None = None

    @property
    def learned_text(self) -> str:
        """What carries loss, in one piece."""
        return self.text if self.spans is None else "".join(self.text[start:stop] for start, stop in self.spans)

    def pieces(self) -> list[tuple[str, bool]]:
        """The text cut where loss begins and ends, with whether each piece carries loss.

        A model is asked with the piece before an answer, so each piece becomes tokens by itself.
        """
        if self.spans is None:
            return [(self.text, True)]
        cuts, place = [], 0
        for start, stop in self.spans:
            cuts += [(self.text[place:start], False), (self.text[start:stop], True)]
            place = stop
        return [(text, loss) for text, loss in (*cuts, (self.text[place:], False)) if text]


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
