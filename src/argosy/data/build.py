"""Corpus → data set: a tokenizer, train and held-out token shards, and a manifest over all.

The corpus is read several times (scan, train the tokenizer, encode each part) in bounded memory::

    OUT/dataset.json      what it is made of; written last
    OUT/tokenizer.json
    OUT/train/            token shards
    OUT/held_out/         token shards
    OUT/rejected.jsonl    records set aside, when there are any

Each stage leaves a file behind when it is done, so that a build that was killed goes on where it was.
"""

import lzma
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import tokenizers

from argosy.data.companions import CHAT_TEMPLATE, copy_companions
from argosy.data.corpus import Corpus
from argosy.data.encode import encode
from argosy.data.files import build_folder, digest_json, fsync, read_json, write_json
from argosy.data.scan import COPIES, SCAN, Scan, changed, scan, split
from argosy.data.shard_writer import ShardWriter
from argosy.data.shards import SHARD_TOKENS, TokenShards
from argosy.data.tokenizer import SPLIT, Kind, Tokenizer
from argosy.errors import InputError

SCHEMA = "argosy.dataset/1"
MANIFEST = "dataset.json"
TOKENIZER_FILE = "tokenizer.json"
REJECTED_FILE = "rejected.jsonl"
UNFINISHED = "tokenizer.tmp"
SPLITS = ("train", "held_out")

TOKENIZER_SAMPLE_BYTES = 256 << 20
"""A BPE is trained on the first this many bytes of the training split."""
BASELINE_BYTES = 32 << 20
"""gzip and xz are measured on the first this many bytes of the held-out split (xz -9 takes about 1 s per MB)."""

Say = Callable[[str], None]
Progress = Callable[[int, int], None]
"""Called with the bytes of text that are done, and all."""


def no_progress(done: int, total: int) -> None:
    """For those who do not look."""


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


@dataclass(frozen=True)
class Options:
    """How a corpus becomes a data set.

    Attributes:
        held_out_share: share of documents, by hash; at least one document is held out.
        most_rejected: bad records that are set aside before the build gives up.
        keep_copies: keep documents whose text an earlier one has.
        shard_tokens: size of a shard.
        chat_template: the template that made conversations into text; kept for whoever talks to the model.
        workers: processes that encode; None: one for each core. The data do not depend on it.
    """

    held_out_share: float = 0.05
    most_rejected: int = 0
    keep_copies: bool = True
    shard_tokens: int = SHARD_TOKENS
    chat_template: str | None = None
    workers: int | None = None

    def key(self) -> dict[str, Any]:
        """Everything of it that determines the data."""
        return {name: value for name, value in asdict(self).items() if name != "workers"}


def build(
    corpus: Corpus,
    folder: Path,
    spec: TokenizerSpec,
    options: Options,
    *,
    say: Say,
    progress: Progress = no_progress,
) -> None:
    """Fill ``folder`` with the data set of ``corpus``; what an earlier start has finished in it is not done again.

    Raises:
        InputError: no text, too few documents to hold one out, or too many bad records.
    """
    found = _scanned(corpus, folder, options, say)
    tokenizer = _tokenizer(spec, corpus, found, folder, say)
    if options.chat_template is not None:
        (folder / CHAT_TEMPLATE).write_text(options.chat_template, encoding="utf-8")
    if spec.path is not None:
        copy_companions(spec.path.parent, folder)
    counts = _Counts(found, options)
    for part in SPLITS:
        _encode(corpus, found, part, tokenizer, spec.kind, folder, options, counts, say, progress)
    if not counts.whole:
        raise changed(corpus)
    texts = (document.learned_text for document, _ in split(corpus, found, "held_out", keep_copies=options.keep_copies))
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
                "copies": found.copies,
                "copied_bytes": found.copied_bytes,
                "held_out_share": options.held_out_share,
            },
            "tokenizer": {
                "kind": spec.kind,
                "vocab_size": tokenizer.vocab_size,
                "asked_vocab_size": spec.vocab_size if spec.kind == "bpe" else tokenizer.vocab_size,
                "end_of_text": tokenizer.end_of_text,
                "digest": tokenizer.digest,
            },
            "made_by": {"options": options.key(), "digest": digest_json([SCHEMA, spec.key(), options.key()])},
            "baselines": _baselines(texts),
            "digest": dataset_digest(folder, tokenizer),
        },
    )
    for name in (SCAN, COPIES, UNFINISHED):
        (folder / name).unlink(missing_ok=True)


def build_data_set(
    corpus: Corpus,
    out: Path,
    spec: TokenizerSpec,
    options: Options,
    *,
    fingerprint: str | None = None,
    say: Say,
    progress: Progress = no_progress,
) -> None:
    """:func:`build` under another name, then renamed to ``out``, which must not exist or be empty.

    Args:
        fingerprint: changes when the source does; with it a build that was killed is gone on with.

    Raises:
        InputError: ``out`` exists, may not be written, or :func:`build` refuses the corpus; nothing is left behind.
        StoppedError: the disk is full. Started again, the build goes on after its last finished shard.
    """
    key = None if fingerprint is None else digest_json([SCHEMA, fingerprint, spec.key(), options.key()])
    if not build_folder(out, lambda folder: build(corpus, folder, spec, options, say=say, progress=progress), say, key):
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


def _scanned(corpus: Corpus, folder: Path, options: Options, say: Say) -> Scan:
    if (found := Scan.read(folder)) is not None:
        say(f"{corpus.name}: going on with a build that was interrupted")
        return found
    found = scan(corpus, options.held_out_share, folder / REJECTED_FILE, options.most_rejected)
    aside = f", {found.rejected:,} records set aside" if found.rejected else ""
    copies = f", {found.copies:,} of them copies" if found.copies else ""
    size = f"{found.documents:,} documents{copies}, {found.text_bytes:,} bytes"
    say(f"{corpus.name}: {size}, digest {found.digest}{aside}")
    found.save(folder)
    return found


def _tokenizer(spec: TokenizerSpec, corpus: Corpus, found: Scan, folder: Path, say: Say) -> Tokenizer:
    file, started = folder / TOKENIZER_FILE, time.monotonic()
    if file.exists():
        return Tokenizer.load(file, spec.kind)
    if spec.kind == "bytes":
        tokenizer = Tokenizer.bytes()
    elif spec.kind == "file":
        assert spec.path is not None
        tokenizer = Tokenizer.load(spec.path)
    else:
        texts = (document.text for document, _ in split(corpus, found, "train"))
        tokenizer = Tokenizer.train(_first_bytes(texts, TOKENIZER_SAMPLE_BYTES), spec.vocab_size)
    unfinished = folder / UNFINISHED
    tokenizer.save(unfinished)
    fsync(unfinished)
    unfinished.rename(file)
    say(f"tokenizer: {spec.kind} with {tokenizer.vocab_size:,} tokens in {time.monotonic() - started:.1f} s")
    return tokenizer


class _Counts:
    """Whether all text that the scan counted was encoded, over all starts of a build."""

    def __init__(self, found: Scan, options: Options):
        self.total = found.text_bytes - (0 if options.keep_copies else found.copied_bytes)
        self.encoded = 0

    @property
    def whole(self) -> bool:
        return self.encoded == self.total


def _encode(
    corpus: Corpus,
    found: Scan,
    part: str,
    tokenizer: Tokenizer,
    kind: Kind,
    folder: Path,
    options: Options,
    counts: _Counts,
    say: Say,
    progress: Progress,
) -> None:
    """One part of the corpus as shards, from the last finished one on."""
    started, read_bytes = time.monotonic(), 0
    with ShardWriter(folder / part, tokenizer.vocab_size, tokenizer.end_of_text, options.shard_tokens) as writer:
        documents = split(corpus, found, part, keep_copies=options.keep_copies)
        for document, _ in islice(documents, writer.done_documents):
            read_bytes += len(document.text.encode())
        for one in encode(documents, tokenizer, folder / TOKENIZER_FILE, kind, options.workers):
            writer.add(one.ids, one.learned_bytes, one.loss, duplicate=one.copy)
            read_bytes += one.text_bytes
            progress(counts.encoded + read_bytes, counts.total)
        if not writer.text_bytes:
            raise InputError(
                f"no document for the part {part!r}",
                where=corpus.name,
                do="change the held-out share, or give more text",
            )
    counts.encoded += read_bytes
    shards = TokenShards.open(folder / part)
    share = f", {shards.loss_tokens:,} of them with loss" if shards.masked else ""
    say(
        f"{part}: {shards.documents:,} documents, {shards.tokens:,} tokens{share}, "
        f"{read_bytes / shards.tokens:.2f} bytes per token in {time.monotonic() - started:.1f} s"
    )


def _first_bytes(texts: Iterable[str], most: int) -> Iterator[str]:
    total = 0
    for text in texts:
        yield text
        total += len(text)
        if total >= most:
            return


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
