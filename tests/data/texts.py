"""Small corpora and shards that the data tests share."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from argosy.data.build import Options, TokenizerSpec, build_data_set
from argosy.data.corpus import Document
from argosy.data.loader import Loader
from argosy.data.mixture import Mixture, Stage
from argosy.data.packing import Split
from argosy.data.samples import SampleOrder
from argosy.data.shard_writer import ShardWriter
from argosy.data.shards import TokenShards


@dataclass(frozen=True)
class Texts:
    """A corpus of given texts."""

    texts: tuple[str, ...]
    name: str = "texts"

    def __iter__(self) -> Iterator[Document]:
        for number, text in enumerate(self.texts):
            yield Document(f"{number}", text, text.encode())


def write_shards(
    folder: Path, lengths: list[int], *, vocab_size: int = 70_000, shard_tokens: int = 1 << 20
) -> TokenShards:
    """Documents of the given numbers of tokens (end-of-text excluded); the token at place i of the stream is i + 1.

    The end-of-text token is 0, so a token says where in the stream it comes from.
    """
    place = 0
    with ShardWriter(folder, vocab_size, 0, shard_tokens) as writer:
        for length in lengths:
            writer.add(np.arange(place + 1, place + length + 1), text_bytes=length)
            place += length + 1
    return TokenShards.open(folder)


def split_loader(shards: TokenShards, sequence_length: int, seed: int = 0, *, masks: bool = False) -> Loader:
    """A loader over one source, cut into samples of `sequence_length`."""
    packing = Split(shards, sequence_length, masks=masks)
    return Loader([packing], SampleOrder(seed, [packing.samples]), sequence_length, masks=masks)


def mixed_loader(folder: Path, samples: dict[str, int], weights: tuple[float, ...], sequence_length: int) -> Loader:
    """A loader over sources with as many samples as said; a token of source k is 10,000 k + its place + 1."""
    packings = []
    for number, (name, count) in enumerate(samples.items()):
        if not (folder / name).exists():
            with ShardWriter(folder / name, 70_000, 0) as writer:
                writer.add(np.arange(count * sequence_length) + 1 + 10_000 * number, text_bytes=1)
        packings.append(Split(TokenShards.open(folder / name), sequence_length))
    counts = [packing.samples for packing in packings]
    mixture = Mixture([Stage(0, weights)], [None] * len(weights))
    return Loader(packings, SampleOrder(5, counts, list(samples), mixture), sequence_length)


def write_corpus(folder: Path, samples: int, sequence_length: int) -> Path:
    """A data set of bytes whose training stream gives so many samples, no two of them alike."""
    train = "".join(f"{number:07d}," for number in range(samples * sequence_length // 8 + 1))
    texts = Texts((train[: samples * sequence_length], *"abcdef"))  # some of the short ones are held out
    build_data_set(texts, folder / "data", TokenizerSpec("bytes"), Options(held_out_share=0.5), say=lambda line: None)
    return folder / "data"
