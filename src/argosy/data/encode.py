"""Documents → token ids, on as many processes as there are cores, in the order of the documents.

The `tokenizers` library has threads of its own, but making arrays of what it returns holds Python's lock: from four
cores on that would take longer than the tokenizing. Each process therefore works alone on batches of whole documents;
results are taken in order, so that the data do not depend on the number of processes.
"""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.data.corpus import Document
from argosy.data.tokenizer import Kind, Tokenizer
from argosy.hardware.machine import this_machine

BATCH_BYTES = 1 << 20
"""Text of one batch."""
ALONE_BATCHES = 8
"""A corpus of fewer batches is encoded in this process: starting others takes longer."""


@dataclass(frozen=True)
class Encoded:
    """A document as tokens: ids, which of them carry loss (None: all), and the bytes of text with loss and of all."""

    ids: NDArray[Any]
    loss: NDArray[np.bool_] | None
    learned_bytes: int
    text_bytes: int
    copy: bool


def encode(
    documents: Iterable[tuple[Document, bool]], tokenizer: Tokenizer, file: Path, kind: Kind, workers: int | None = None
) -> Iterator[Encoded]:
    """Tokens of documents (each with whether it is a copy), in order.

    Args:
        file: where other processes find the tokenizer.
        workers: processes; None: one for each core, or none for a small corpus; 1: this one alone, with the threads of
            the library.
    """
    batches = _by_size(documents)
    may_start = not multiprocessing.current_process().daemon
    processes = (workers or this_machine().cores) if may_start else 1
    first = list(islice(batches, ALONE_BATCHES)) if workers is None else []
    if processes == 1 or (workers is None and len(first) < ALONE_BATCHES):
        for batch in chain(first, batches):
            yield from encode_batch(tokenizer, batch)
        return
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may stand still
    with context.Pool(processes, _begin, (file, kind)) as pool:
        under_way: deque[AsyncResult[list[Encoded]]] = deque()
        for batch in chain(first, batches):
            under_way.append(pool.apply_async(_work, (batch,)))
            if len(under_way) > 2 * processes:  # bounds memory
                yield from under_way.popleft().get()
        while under_way:
            yield from under_way.popleft().get()


def encode_batch(tokenizer: Tokenizer, batch: Sequence[tuple[Document, bool]]) -> list[Encoded]:
    """Tokens of some documents, in one call of the tokenizer."""
    kind = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    plain = [document.text for document, _ in batch if document.spans is None and document.ids is None]
    texts = iter(tokenizer.encode_batch(plain))
    pieces = [document.pieces() for document, _ in batch if document.spans is not None]
    cuts = iter(tokenizer.encode_batch([text for cut in pieces for text, _ in cut], special=True) if pieces else [])
    cut_of = iter(pieces)
    found = []
    for document, copy in batch:
        size, loss = len(document.text.encode()), None
        learned = size
        if document.ids is not None:
            ids = document.ids
        elif document.spans is None:
            ids = next(texts)
        else:
            ids, loss = _masked(next(cut_of), cuts, tokenizer.end_of_text)
            learned = int(tokenizer.token_bytes[ids[loss]].sum())
        found.append(Encoded(ids.astype(kind), loss, learned, size, copy))
    return found


def _masked(
    cut: Sequence[tuple[str, bool]], encoded: Iterator[NDArray[np.int64]], end_of_text: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Token ids of a conversation, and which of them carry loss."""
    parts = [(ids, np.full(ids.size, loss)) for (_, loss), ids in zip(cut, encoded, strict=False)]
    ids, loss = (np.concatenate(part) for part in zip(*parts, strict=True))
    if ids[-1] == end_of_text:  # by the template; every document gets one anyway
        ids, loss = ids[:-1], loss[:-1]
    return ids, loss


def _by_size(documents: Iterable[tuple[Document, bool]]) -> Iterator[list[tuple[Document, bool]]]:
    batch: list[tuple[Document, bool]] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document[0].text)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


_here: list[Tokenizer] = []
"""The tokenizer of a worker process."""


def _begin(file: Path, kind: Kind) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends the others
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core for each process
    _here.append(Tokenizer.load(file, kind))


def _work(batch: Sequence[tuple[Document, bool]]) -> list[Encoded]:
    return encode_batch(_here[0], batch)
