"""The first pass over a corpus: count it, digest it, set bad records aside, decide what is held out."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from argosy.data.corpus import Corpus, Document, Rejected, split_hash
from argosy.errors import InputError


@dataclass(frozen=True)
class HeldOut:
    """Which documents are held out: a function of the document alone.

    Those whose hash is below the share, unless one alone is larger than the whole held-out share: a single
    document would then decide the evaluation.
    """

    below: int
    most_bytes: float

    def __contains__(self, document: Document) -> bool:
        return split_hash(document) < self.below and len(document.text.encode()) <= self.most_bytes


@dataclass(frozen=True)
class Scan:
    """What the first pass found."""

    documents: int
    text_bytes: int
    digest: str
    rejected: int
    held_out: HeldOut


def scan(corpus: Corpus, held_out_share: float, rejected_path: Path, most_rejected: int) -> Scan:
    """Read the whole corpus once.

    Args:
        rejected_path: bad records are written here, one JSON object a line; no file without any.
        most_rejected: the scan gives up beyond this many.

    Raises:
        InputError: too many bad records, or no two documents.
    """
    state = xxhash.xxh3_128()
    documents = text_bytes = 0
    lowest, share = 1 << 64, round(held_out_share * (1 << 64))
    candidate_sizes: list[int] = []
    rejected: list[Rejected] = []
    for record in corpus:
        if isinstance(record, Rejected):
            rejected.append(record)
            if len(rejected) > most_rejected:
                raise InputError(
                    f"bad record ({record.reason}), the {len(rejected)}. of {documents + len(rejected)}",
                    where=f"{corpus.name}: {record.name}",
                    do=f"repair the source, or allow more than {most_rejected} with --most-rejected",
                )
            continue
        content = record.text.encode()
        digest_document(state, record.name, content)
        documents += 1
        text_bytes += len(content)
        lowest = min(lowest, place := split_hash(record))
        if place < share:
            candidate_sizes.append(len(content))
    if documents < 2:
        aside = f"; {len(rejected)} records were set aside, the first for: {rejected[0].reason}" if rejected else ""
        raise InputError(
            f"{documents or 'no'} document with text; two are needed, one of them to hold out{aside}",
            where=corpus.name,
            do="repair the records" if rejected else "give more text",
        )
    most_bytes = held_out_share * text_bytes
    if any(size <= most_bytes for size in candidate_sizes):
        held_out = HeldOut(share, most_bytes)
    else:  # a small corpus still needs something to evaluate on
        held_out = HeldOut(lowest + 1, float("inf"))
    if rejected:
        _set_aside(rejected, rejected_path)
    return Scan(documents, text_bytes, state.hexdigest(), len(rejected), held_out)


def digest_document(state: xxhash.xxh3_128, name: str, content: bytes) -> None:
    """Feed a name and a text so that no other sequence of documents gives the same bytes."""
    state.update(f"{len(name.encode())} {len(content)} {name}".encode())
    state.update(content)


def split(corpus: Corpus, found: Scan, part: str) -> Iterator[Document]:
    """Documents of ``train`` or of ``held_out``."""
    for record in corpus:
        if isinstance(record, Document) and (record in found.held_out) == (part == "held_out"):
            yield record


def _set_aside(rejected: list[Rejected], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for record in rejected:
            beginning = record.beginning.decode("utf-8", errors="backslashreplace")
            file.write(json.dumps({"record": record.name, "reason": record.reason, "beginning": beginning}) + "\n")
