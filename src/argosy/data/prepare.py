"""From a recipe to open data: built on first use, found again afterwards."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.data.build import (
    MANIFEST,
    SCHEMA,
    TOKENIZER_FILE,
    Say,
    TokenizerSpec,
    build,
    dataset_digest,
    read_manifest,
)
from argosy.data.files import build_folder, digest_json
from argosy.data.shards import TokenShards
from argosy.data.stdlib import StandardLibrary
from argosy.data.tokenizer import Tokenizer
from argosy.errors import InputError, UsageError
from argosy.recipe.schema import Recipe, TokenizerTable

VERIFIED_BYTES = 2 << 30
"""Data sets up to this size are verified whenever they are prepared (about a second)."""


@dataclass(frozen=True)
class Prepared:
    """A data set that is ready to train on.

    Attributes:
        folder: where it lies; ranks open it with :func:`open_data`.
        vocab_size: rows of the model's embedding (at least the tokenizer's size).
        digest: of tokenizer and token streams; a run must go on with the same.
        source_digest: of the text.
        held_out_bytes: bytes of the held-out text, the denominator of bits per byte.
        gzip_bits_per_byte, xz_bits_per_byte: `gzip -9` and `xz -9` on the held-out text (the first 32 MiB of it).
    """

    folder: Path
    train: TokenShards
    held_out: TokenShards
    tokenizer: Tokenizer
    vocab_size: int
    digest: str
    source_digest: str
    held_out_bytes: int
    gzip_bits_per_byte: float
    xz_bits_per_byte: float


def prepare(recipe: Recipe, say: Say = lambda line: None) -> Prepared:
    """Build the recipe's data unless it is there, verify it and open it.

    Call it once before ranks start; concurrent calls wait for each other.

    Args:
        say: receives lines of progress.

    Raises:
        InputError: data is missing or damaged, has another digest than ``data.digest``, or does not fit the model.
        UsageError: the recipe's tokenizer is not the one that ``data.source`` was built with.
        StoppedError: the disk is full.
    """
    return open_data(data_folder(recipe, say), recipe, verify=True)


def data_folder(recipe: Recipe, say: Say = lambda line: None) -> Path:
    """Where the recipe's data lies; that of the standard library is built on first use."""
    source = recipe.data.source
    return _stdlib_folder(recipe, say) if source == "stdlib" else Path(source).expanduser()


def open_data(folder: Path, recipe: Recipe, *, verify: bool = False) -> Prepared:
    """Open a data set that exists, as :func:`prepare` does at its end.

    Args:
        verify: compare digests of the files, up to 2 GiB of shards; without it only their sizes.

    Raises:
        InputError, UsageError: see :func:`prepare`.
    """
    manifest = read_manifest(folder)
    train, held_out = (TokenShards.open(folder / split) for split in ("train", "held_out"))
    tokenizer = Tokenizer.load(folder / TOKENIZER_FILE, kind=manifest["tokenizer"]["kind"])
    digest = dataset_digest(folder, tokenizer)
    if digest != manifest["digest"]:
        raise InputError(
            f"parts of different data sets: digest {digest}, the manifest says {manifest['digest']}",
            where=str(folder / MANIFEST),
            do="copy the whole folder again",
        )
    if recipe.data.digest not in (None, digest):
        raise InputError(
            f"wrong digest {digest}, the recipe asks for {recipe.data.digest}",
            where=str(folder),
            do="use the data of that digest, or set data.digest",
        )
    if verify and (train.tokens + held_out.tokens) * train.dtype.itemsize <= VERIFIED_BYTES:
        train.verify()
        held_out.verify()
    _check_tokenizer(recipe.tokenizer, manifest["tokenizer"], folder)
    vocab_size = recipe.vocab_size or tokenizer.vocab_size
    for shards in (train, held_out):
        shards.check_vocab(vocab_size)
    return Prepared(
        folder=folder,
        train=train,
        held_out=held_out,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        digest=digest,
        source_digest=manifest["source"]["digest"],
        held_out_bytes=held_out.text_bytes,
        gzip_bits_per_byte=manifest["baselines"]["gzip_bits_per_byte"],
        xz_bits_per_byte=manifest["baselines"]["xz_bits_per_byte"],
    )


def _stdlib_folder(recipe: Recipe, say: Say) -> Path:
    corpus = StandardLibrary.of_this_python()
    table = recipe.tokenizer
    spec = TokenizerSpec(table.kind, table.vocab_size, Path(table.path).expanduser() if table.path else None)
    key = digest_json([SCHEMA, corpus.digest, recipe.data.held_out_share, spec.key()])
    folder = Path(recipe.data.cache).expanduser() / f"stdlib-{key[:16]}"
    if not (folder / MANIFEST).is_file():

        def fill(empty: Path) -> None:
            build(corpus, empty, spec, held_out_share=recipe.data.held_out_share, say=say)

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
