"""Corpus → data set: a tokenizer, train and held-out token shards, and a manifest over all.

The corpus is read three times (scan, train the tokenizer, encode) in bounded memory::

    OUT/dataset.json      what it is made of; written last
    OUT/tokenizer.json
    OUT/train/            token shards
    OUT/held_out/         token shards
    OUT/rejected.jsonl    records set aside, when there are any
"""

import lzma
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from argosy.data.companions import CHAT_TEMPLATE, copy_companions
from argosy.data.corpus import Corpus, Document
from argosy.data.files import build_folder, digest_json, fsync, read_json, write_json
from argosy.data.scan import Scan, scan, split
from argosy.data.shard_writer import ShardWriter
from argosy.data.shards import SHARD_TOKENS, TokenShards
from argosy.data.tokenizer import SPLIT, Kind, Tokenizer
from argosy.errors import InputError

SCHEMA = "argosy.dataset/1"
MANIFEST = "dataset.json"
TOKENIZER_FILE = "tokenizer.json"
REJECTED_FILE = "rejected.jsonl"
SPLITS = ("train", "held_out")

ENCODE_BYTES = 8 << 20
"""Text encoded in one call: enough to keep all cores busy, little enough to bound memory."""
TOKENIZER_SAMPLE_BYTES = 256 << 20
"""A BPE is trained on the first this many bytes of the training split."""
BASELINE_BYTES = 32 << 20
"""gzip and xz are measured on the first this many bytes of the held-out split (xz -9 takes about 1 s per MB)."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class TokenizerSpec:
    """Which tokenizer a data set gets; the recipe's `tokenizer` table as a value."""

    kind: Kind = "bpe"
    vocab_size: int = 4096
    path: Path | None = None

    def key(self) -> dict[str, Any]:
        """Everything that determines the tokenizer, given the text."""
        if self.kind == "bpe":
            return {"bpe": self.vocab_size, "split": SPLIT, "library": tokenizers.__version__}
        if self.kind == "file":
            assert self.path is not None
            return {"file": Tokenizer.load(self.path).digest}
        return {"bytes": 257}


def build(
    corpus: Corpus,
    folder: Path,
    spec: TokenizerSpec,
    *,
    held_out_share: float,
    most_rejected: int = 0,
    shard_tokens: int = SHARD_TOKENS,
    chat_template: str | None = None,
    say: Say,
) -> None:
    """Fill an existing, empty ``folder`` with the data set of ``corpus``.

    Args:
        held_out_share: share of documents, by hash; at least one document is held out.
        most_rejected: bad records that are set aside before the build gives up.
        chat_template: the template that made conversations into text; kept for whoever talks to the model.

    Raises:
        InputError: no text, too few documents to hold one out, or too many bad records.
    """
    found = scan(corpus, held_out_share, folder / REJECTED_FILE, most_rejected)
    aside = f", {found.rejected:,} records set aside" if found.rejected else ""
    say(f"{corpus.name}: {found.documents:,} documents, {found.text_bytes:,} bytes, digest {found.digest}{aside}")
    started = time.monotonic()
    tokenizer = _tokenizer(spec, corpus, found)
    tokenizer.save(folder / TOKENIZER_FILE)
    fsync(folder / TOKENIZER_FILE)
    if chat_template is not None:
        (folder / CHAT_TEMPLATE).write_text(chat_template, encoding="utf-8")
    if spec.path is not None:
        copy_companions(spec.path.parent, folder)
    say(f"tokenizer: {spec.kind} with {tokenizer.vocab_size:,} tokens in {time.monotonic() - started:.1f} s")
    encoded_bytes = 0
    for part in SPLITS:
        started = time.monotonic()
        documents = split(corpus, found, part)
        shards, read_bytes = _encode(documents, tokenizer, folder / part, shard_tokens, where=corpus.name)
        share = f", {shards.loss_tokens:,} of them with loss" if shards.masked else ""
        say(
            f"{part}: {shards.documents:,} documents, {shards.tokens:,} tokens{share}, "
            f"{read_bytes / shards.tokens:.2f} bytes per token in {time.monotonic() - started:.1f} s"
        )
        encoded_bytes += read_bytes
    if encoded_bytes != found.text_bytes:
        raise InputError("changed while it was read", where=corpus.name, do="build again")
    write_json(
        folder / MANIFEST,
        {
            "schema": SCHEMA,
            "source": {
                "name": corpus.name,
                "digest": found.digest,
                "documents": found.documents,
                "text_bytes": found.text_bytes,
                "rejected": found.rejected,
                "held_out_share": held_out_share,
            },
            "tokenizer": {
                "kind": spec.kind,
                "vocab_size": tokenizer.vocab_size,
                "asked_vocab_size": spec.vocab_size if spec.kind == "bpe" else tokenizer.vocab_size,
                "end_of_text": tokenizer.end_of_text,
                "digest": tokenizer.digest,
            },
            "baselines": _baselines(document.learned_text for document in split(corpus, found, "held_out")),
            "digest": dataset_digest(folder, tokenizer),
        },
    )


def build_data_set(
    corpus: Corpus,
    out: Path,
    spec: TokenizerSpec,
    *,
    held_out_share: float,
    most_rejected: int = 0,
    chat_template: str | None = None,
    say: Say,
) -> None:
    """:func:`build` under another name, then renamed to ``out``, which must not exist or be empty.

    Raises:
        InputError: ``out`` exists, may not be written, or :func:`build` refuses the corpus.
        StoppedError: the disk is full. In every case nothing is left behind.
    """

    def fill(folder: Path) -> None:
        build(
            corpus,
            folder,
            spec,
            held_out_share=held_out_share,
            most_rejected=most_rejected,
            chat_template=chat_template,
            say=say,
        )

    if not build_folder(out, fill, say):
        raise InputError("exists already", where=str(out), do="remove it or choose another folder")


def dataset_digest(folder: Path, tokenizer: Tokenizer) -> str:
    """Digest of what a model sees: the tokenizer and both token streams."""
    return digest_json([tokenizer.digest, *(TokenShards.open(folder / split).digest for split in SPLITS)])


def read_manifest(folder: Path) -> dict[str, Any]:
    """The data set's manifest.

    Raises:
        InputError: no such folder, or no data set in it.
    """
    if not folder.is_dir():
        raise InputError("no such data folder", where=str(folder), do="make it with `argosy data build`")
    return read_json(folder / MANIFEST, SCHEMA)


def _tokenizer(spec: TokenizerSpec, corpus: Corpus, found: Scan) -> Tokenizer:
    if spec.kind == "bytes":
        return Tokenizer.bytes()
    if spec.kind == "file":
        assert spec.path is not None
        return Tokenizer.load(spec.path)
    texts = (document.text for document in split(corpus, found, "train"))
    return Tokenizer.train(_first_bytes(texts, TOKENIZER_SAMPLE_BYTES), spec.vocab_size)


def _encode(
    documents: Iterable[Document], tokenizer: Tokenizer, folder: Path, shard_tokens: int, where: str
) -> tuple[TokenShards, int]:
    """The documents as shards, and how many bytes of text they had."""
    read_bytes = 0
    with ShardWriter(folder, tokenizer.vocab_size, tokenizer.end_of_text, shard_tokens) as writer:
        for batch in _by_size(documents, ENCODE_BYTES):
            read_bytes += sum(len(document.text.encode()) for document in batch)
            if batch[0].spans is not None:
                for ids, loss in _masked(batch, tokenizer):
                    writer.add(ids, int(tokenizer.token_bytes[ids[loss]].sum()), loss)
                continue
            texts = [document.text for document in batch]
            for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
                writer.add(ids, len(text.encode()))
    if not writer.text_bytes:
        raise InputError(
            f"no document for the part {folder.name!r}", where=where, do="change the held-out share, or give more text"
        )
    return TokenShards.open(folder), read_bytes


def _masked(batch: Sequence[Document], tokenizer: Tokenizer) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Token ids of conversations, and which of them carry loss."""
    pieces = [document.pieces() for document in batch]
    encoded = iter(tokenizer.encode_batch([text for cut in pieces for text, _ in cut], special=True))
    for cut in pieces:
        parts = [(ids, np.full(ids.size, loss)) for (_, loss), ids in zip(cut, encoded, strict=False)]
        ids, loss = (np.concatenate(part) for part in zip(*parts, strict=True))
        if ids[-1] == tokenizer.end_of_text:  # by the template; every document gets one anyway
            ids, loss = ids[:-1], loss[:-1]
        yield ids, loss


def _first_bytes(texts: Iterable[str], most: int) -> Iterator[str]:
    total = 0
    for text in texts:
        yield text
        total += len(text)
        if total >= most:
            return


def _by_size(documents: Iterable[Document], most_bytes: int) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        if size >= most_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _baselines(texts: Iterable[str]) -> dict[str, Any]:
    """Bits per byte of `gzip -9` and `xz -9` on the held-out documents in one piece."""
    gzip, xz = zlib.compressobj(9, wbits=31), lzma.LZMACompressor(preset=9)
    read = gzip_bytes = xz_bytes = 0
    for text in texts:
        content = text.encode()
        read += len(content)
        gzip_bytes += len(gzip.compress(content))
        xz_bytes += len(xz.compress(content))
        if read >= BASELINE_BYTES:
            break
    gzip_bytes += len(gzip.flush())
    xz_bytes += len(xz.flush())
    return {
        "text_bytes": read,
        "gzip_bits_per_byte": 8 * gzip_bytes / read,
        "xz_bits_per_byte": 8 * xz_bytes / read,
    }
