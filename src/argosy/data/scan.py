"""The first pass over a corpus: count it, digest it, find copies, set bad records aside, decide what is held out."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from argosy.data.corpus import Corpus, Document, Rejected, split_hash
from argosy.data.files import read_json, write_json
from argosy.errors import InputError

SCHEMA = "argosy.scan/1"
SCAN = "scan.json"
COPIES = "copies.npy"


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
    """What the first pass found.

    Attributes:
        documents, text_bytes: of all that could be read, copies too.
        copies, copied_bytes: documents whose text an earlier one has, and their size.
        is_copy: [documents] which.
    """

    documents: int
    text_bytes: int
    digest: str
    rejected: int
    held_out: HeldOut
    copies: int
    copied_bytes: int
    is_copy: NDArray[np.bool_]

    def save(self, folder: Path) -> None:
        """Write it where a build that is started again finds it."""
        np.save(folder / COPIES, self.is_copy)
        values = {name: value for name, value in vars(self).items() if name not in ("is_copy", "held_out")}
        limit = None if self.held_out.most_bytes == float("inf") else self.held_out.most_bytes
        held_out = asdict(self.held_out) | {"most_bytes": limit}
        write_json(folder / SCAN, {"schema": SCHEMA, **values, "held_out": held_out})

    @classmethod
    def read(cls, folder: Path) -> "Scan | None":
        """What an earlier start of the build found; None if it did not get that far."""
        if not (folder / SCAN).exists():
            return None
        values: dict[str, Any] = read_json(folder / SCAN, SCHEMA)
        held_out = values.pop("held_out")
        del values["schema"]
        limit = float("inf") if held_out["most_bytes"] is None else held_out["most_bytes"]
        return cls(held_out=HeldOut(held_out["below"], limit), is_copy=np.load(folder / COPIES), **values)


def scan(corpus: Corpus, held_out_share: float, rejected_path: Path, most_rejected: int) -> Scan:
    """Read the whole corpus once; 24 bytes of memory for each document.

    Args:
        rejected_path: bad records are written here, one JSON object a line; no file without any.
        most_rejected: the scan gives up beyond this many.

    Raises:
        InputError: too many bad records, or no two documents.
    """
    state = xxhash.xxh3_128()
    lowest, share = 1 << 64, round(held_out_share * (1 << 64))
    candidate_sizes: list[int] = []
    hashes, sizes = bytearray(), bytearray()
    rejected: list[Rejected] = []
    for record in corpus:
        if isinstance(record, Rejected):
            rejected.append(record)
            if len(rejected) > most_rejected:
                raise InputError(
                    f"bad record ({record.reason}), the {len(rejected)}. of {len(sizes) // 8 + len(rejected)}",
                    where=f"{corpus.name}: {record.name}",
                    do=f"repair the source, or allow more than {most_rejected} with --most-rejected",
                )
            continue
        content = record.text.encode()
        digest_document(state, record.name, content)
        hashes += xxhash.xxh3_128_digest(content)
        sizes += len(content).to_bytes(8, "little")
        lowest = min(lowest, place := split_hash(record))
        if place < share:
            candidate_sizes.append(len(content))
    bytes_of = np.frombuffer(sizes, dtype="<i8")
    documents, text_bytes = len(bytes_of), int(bytes_of.sum())
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
    is_copy = _copies(np.frombuffer(hashes, dtype="<u8").reshape(-1, 2))
    return Scan(
        documents=documents,
        text_bytes=text_bytes,
        digest=state.hexdigest(),
        rejected=len(rejected),
        held_out=held_out,
        copies=int(is_copy.sum()),
        copied_bytes=int(bytes_of[is_copy].sum()),
        is_copy=is_copy,
    )


def digest_document(state: xxhash.xxh3_128, name: str, content: bytes) -> None:
    """Feed a name and a text so that no other sequence of documents gives the same bytes."""
    state.update(f"{len(name.encode())} {len(content)} {name}".encode())
    state.update(content)


def split(corpus: Corpus, found: Scan, part: str, *, keep_copies: bool = True) -> Iterator[tuple[Document, bool]]:
    """Documents of ``train`` or of ``held_out``, with whether an earlier one has the same text.

    Raises:
        InputError: there are more documents than the scan found.
    """
    number = -1
    for record in corpus:
        if isinstance(record, Rejected):
            continue
        number += 1
        if number >= found.documents:
            raise changed(corpus)
        copy = bool(found.is_copy[number])
        if (keep_copies or not copy) and (record in found.held_out) == (part == "held_out"):
            yield record, copy


def changed(corpus: Corpus) -> InputError:
    """The corpus is not what the scan saw."""
    return InputError("changed while it was read", where=corpus.name, do="build again")


def _copies(hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which rows of [n, 2] equal an earlier one."""
    order = np.lexsort((hashes[:, 0], hashes[:, 1]))  # stable: the earliest of equal ones comes first
    ordered = hashes[order]
    is_copy = np.zeros(len(hashes), dtype=np.bool_)
    is_copy[order[1:]] = (ordered[1:] == ordered[:-1]).all(axis=1)
    return is_copy


def _set_aside(rejected: list[Rejected], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for record in rejected:
            beginning = record.beginning.decode("utf-8", errors="backslashreplace")
            file.write(json.dumps({"record": record.name, "reason": record.reason, "beginning": beginning}) + "\n")
