"""Speed of the training loader beside torch's DataLoader over the same mapped file, in alternating pairs.

Run: python bench/loader_speed.py [--json]

Both give [b, S] int64 inputs and targets of a random order from one thread, page cache warm. The DataLoader side is
what is usually written by hand: a map-style dataset that slices a numpy memmap, and a shuffling sampler.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from argosy.data.loader import Loader
from argosy.data.shard_writer import ShardWriter
from argosy.data.shards import TokenShards

PAIRS = 9


class MemmapDataset(Dataset):
    """Windows of a token file, one per item."""

    def __init__(self, path: Path, sequence_length: int):
        self.tokens = np.memmap(path, dtype="<u2", mode="r")
        self.sequence_length = sequence_length

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.sequence_length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.sequence_length
        window = torch.from_numpy(self.tokens[start : start + self.sequence_length + 1].astype(np.int64))
        return window[:-1], window[1:]


def make_shards(folder: Path, tokens: int) -> TokenShards:
    generator = np.random.default_rng(0)
    with ShardWriter(folder, 50_000, 0) as writer:
        for _ in range(tokens // 1_000_000):
            writer.add(generator.integers(1, 50_000, 999_999), text_bytes=4_000_000)
    return TokenShards.open(folder)


def tokens_per_s(batches: Callable[[], Iterator[torch.Tensor]], steps: int) -> float:
    iterator = batches()
    next(iterator)  # start-up of workers and of the epoch's order is not what is compared
    started = time.perf_counter()
    tokens = sum(next(iterator).numel() for _ in range(steps))
    return tokens / (time.perf_counter() - started)


def compare(shards: TokenShards, sequence_length: int, rows: int, steps: int) -> dict[str, float]:
    loader = Loader(shards, sequence_length, rows, seed=0)
    dataset = MemmapDataset(shards.folder / "tokens-00000.bin", sequence_length)

    def ours() -> Iterator[torch.Tensor]:
        return (loader.batch(step).tokens for step in range(steps + 1))

    def theirs() -> Iterator[torch.Tensor]:
        return (tokens for tokens, _ in DataLoader(dataset, batch_size=rows, shuffle=True, drop_last=True))

    pairs = [(tokens_per_s(ours, steps), tokens_per_s(theirs, steps)) for _ in range(PAIRS)]
    return {
        "sequence_length": sequence_length,
        "batch_sequences": rows,
        "argosy_tokens_per_s": statistics.median(mine for mine, _ in pairs),
        "dataloader_tokens_per_s": statistics.median(other for _, other in pairs),
        "ratio": statistics.median(mine / other for mine, other in pairs),
    }


def seek_s(shards: TokenShards) -> float:
    """Time from a new loader to the batch that holds sample index 10^9."""
    started = time.perf_counter()
    Loader(shards, 256, 8, seed=0).batch(10**9 // 8)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tokens", type=int, default=50_000_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        shards = make_shards(Path(folder) / "shards", arguments.tokens)
        rows = [compare(shards, length, 65_536 // length // 2, steps=100) for length in (256, 2048)]
        seek = statistics.median(seek_s(shards) for _ in range(PAIRS))
    if arguments.json:
        print(json.dumps({"schema": 1, "loader": rows, "seek_s": seek}))
        return
    print(f"{'S':>6} {'rows':>5} {'argosy M tok/s':>15} {'DataLoader':>11} {'ratio':>6}")
    for row in rows:
        print(
            f"{row['sequence_length']:>6} {row['batch_sequences']:>5} {row['argosy_tokens_per_s'] / 1e6:>15.1f} "
            f"{row['dataloader_tokens_per_s'] / 1e6:>11.1f} {row['ratio']:>6.1f}"
        )
    print(f"seek to sample 10^9: {seek * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
