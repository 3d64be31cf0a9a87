"""From a recipe to open data: built on first use, found again afterwards."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from argosy.data.build import (
    MANIFEST,
    SCHEMA,
    TOKENIZER_FILE,
    Options,
    Say,
    TokenizerSpec,
    build,
    dataset_digest,
    read_manifest,
)
from argosy.data.companions import copy_companions
from argosy.data.files import build_folder, digest_json
from argosy.data.shards import TokenShards
from argosy.data.sources import JoinedShards, Source, note_mixture, noted_folders
from argosy.data.stdlib import StandardLibrary
from argosy.data.tokenizer import Tokenizer
from argosy.errors import InputError, UsageError
from argosy.recipe.schema import Recipe, TokenizerTable

VERIFIED_BYTES = 2 << 30
"""Data sets up to this size are verified whenever they are prepared (about a second)."""


@dataclass(frozen=True)
class Prepared:
    """Data that is ready to train on: one data set, or several of a mixture with one tokenizer.

    Attributes:
        folder: where ranks find it with :func:`open_data`.
        sources: the data sets.
        held_out: all their held-out text.
        vocab_size: rows of the model's embedding (at least the tokenizer's size).
        digest: of tokenizer and token streams; a run must go on with the same.
        source_digest: of the text.
        held_out_bytes: bytes of the held-out text, the denominator of bits per byte.
        gzip_bits_per_byte, xz_bits_per_byte: `gzip -9` and `xz -9` on the held-out text (the first 32 MiB of it).
    """

    folder: Path
    sources: tuple[Source, ...]
    held_out: TokenShards | JoinedShards
    tokenizer: Tokenizer
    vocab_size: int
    digest: str
    source_digest: str
    held_out_bytes: int
    gzip_bits_per_byte: float
    xz_bits_per_byte: float

    @property
    def train_tokens(self) -> int:
        """Tokens to train on, over all sources."""
        return sum(source.train.tokens for source in self.sources)


def prepare(recipe: Recipe, say: Say = lambda line: None) -> Prepared:
    """Build the recipe's data unless it is there, verify it and open it.

    Call it once before ranks start; concurrent calls wait for each other.

    Args:
        say: receives lines of progress.

    Raises:
        InputError: data is missing or damaged, has another digest than ``data.digest``, or does not fit the model.
        UsageError: the recipe's tokenizer is not the one that the data was built with, or sources have different ones.
        StoppedError: the disk is full.
    """
    return open_data(data_folder(recipe, say), recipe, verify=True)


def data_folder(recipe: Recipe, say: Say = lambda line: None) -> Path:
    """Where the recipe's data lies; that of the standard library is built on first use.

    A mixture has a folder that names its data sets. The tokenizer's files are in it in either case.
    """
    table = recipe.data
    if not table.sources:
        return _source_folder(recipe, table.source, say)
    folders = {one.name: _source_folder(recipe, one.folder, say) for one in table.sources}
    tokenizers = {name: read_manifest(folder)["tokenizer"]["digest"] for name, folder in folders.items()}
    first = next(iter(folders.values()))
    return note_mixture(folders, tokenizers, Path(table.cache).expanduser(), partial(copy_companions, first))


def open_data(folder: Path, recipe: Recipe, *, verify: bool = False) -> Prepared:
    """Open data that exists, as :func:`prepare` does at its end.

    Args:
        verify: compare digests of the files, up to 2 GiB of shards for each source; without it only their sizes, and
            what is read when it is read.

    Raises:
        InputError, UsageError: see :func:`prepare`.
    """
    folders = noted_folders(folder)
    built = read_manifest(next(iter(folders.values())))["tokenizer"]
    tokenizer = Tokenizer.load(folder / TOKENIZER_FILE, kind=built["kind"])
    sources = tuple(_open_source(name, place, recipe, tokenizer, verify) for name, place in folders.items())
    alone = sources[0] if len(sources) == 1 and not sources[0].name else None
    digest = alone.digest if alone else digest_json([[source.name, source.digest] for source in sources])
    if recipe.data.digest not in (None, digest):
        raise InputError(
            f"wrong digest {digest}, the recipe asks for {recipe.data.digest}",
            where=str(folder),
            do="use the data of that digest, or set data.digest",
        )
    held_out = alone.held_out if alone else JoinedShards([source.held_out for source in sources])
    return Prepared(
        folder=folder,
        sources=sources,
        held_out=held_out,
        tokenizer=tokenizer,
        vocab_size=recipe.vocab_size or tokenizer.vocab_size,
        digest=digest,
        source_digest=alone.source_digest if alone else digest_json([source.source_digest for source in sources]),
        held_out_bytes=held_out.text_bytes,
        gzip_bits_per_byte=_baseline(sources, "gzip_bits_per_byte"),
        xz_bits_per_byte=_baseline(sources, "xz_bits_per_byte"),
    )


def _open_source(name: str, folder: Path, recipe: Recipe, tokenizer: Tokenizer, verify: bool) -> Source:
    manifest = read_manifest(folder)
    train, held_out = (TokenShards.open(folder / split) for split in ("train", "held_out"))
    digest = dataset_digest(folder, tokenizer)
    if digest != manifest["digest"]:
        raise InputError(
            f"parts of different data sets: digest {digest}, the manifest says {manifest['digest']}",
            where=str(folder / MANIFEST),
            do="copy the whole folder again",
        )
    if verify and (train.tokens + held_out.tokens) * train.dtype.itemsize <= VERIFIED_BYTES:
        train.verify()
        held_out.verify()
    _check_tokenizer(recipe.tokenizer, manifest["tokenizer"], folder)
    for shards in (train, held_out):
        shards.check_vocab(recipe.vocab_size or tokenizer.vocab_size)
    return Source(name, folder, train, held_out, digest, manifest["source"]["digest"], manifest["baselines"])


def _baseline(sources: tuple[Source, ...], name: str) -> float:
    """Mean over sources, weighted by the bytes that were compressed."""
    read = sum(source.baselines["text_bytes"] for source in sources)
    return sum(source.baselines[name] * source.baselines["text_bytes"] for source in sources) / read


def _source_folder(recipe: Recipe, source: str, say: Say) -> Path:
    return _stdlib_folder(recipe, say) if source == "stdlib" else Path(source).expanduser()


def _stdlib_folder(recipe: Recipe, say: Say) -> Path:
    corpus = StandardLibrary.of_this_python()
    table = recipe.tokenizer
    spec = TokenizerSpec(table.kind, table.vocab_size, Path(table.path).expanduser() if table.path else None)
    key = digest_json([SCHEMA, corpus.digest, recipe.data.held_out_share, spec.key()])
    folder = Path(recipe.data.cache).expanduser() / f"stdlib-{key[:16]}"
    if not (folder / MANIFEST).is_file():

        def fill(empty: Path) -> None:
            build(corpus, empty, spec, Options(held_out_share=recipe.data.held_out_share, workers=1), say=say)

        say(f"building {folder}")
        build_folder(folder, fill, say)
    return folder


def _check_tokenizer(table: TokenizerTable, built: dict[str, Any], folder: Path) -> None:
    same = table.kind == built["kind"]
    if table.kind == "bpe":
        same = same and table.vocab_size == built["asked_vocab_size"]
        wanted = f"bpe of {table.vocab_size}"
    elif table.kind == "file":
        assert table.path is not None
        same = Tokenizer.load(Path(table.path).expanduser()).digest == built["digest"]
        wanted = table.path
    else:
        wanted = table.kind
    if not same:
        path = folder / TOKENIZER_FILE
        settings = {
            "bpe": f"tokenizer.kind = 'bpe' and tokenizer.vocab_size = {built['asked_vocab_size']}",
            "bytes": "tokenizer.kind = 'bytes'",
            "file": f"tokenizer.kind = 'file' and tokenizer.path = '{path}'",
        }
        raise UsageError(
            f"the recipe's tokenizer ({wanted}) is not the one this data was built with",
            where=str(folder),
            do=f"set {settings[built['kind']]}",
        )
