"""How each peer serves the corpus of bench/data_serving.py: python serve.py PEER FOLDER STEPS prints tokens per second.

FOLDER/NNN.npy is the token stream of a source, documents ended by token 0; FOLDER/weights.json has the weights. Each
peer gets it in its own format (written once, not counted), mixes the sources by weight, shuffles, and hands batches to
one collate function that finds documents by their end token, which is what people write. `datasets` serves documents,
which are joined and cut by the usual generator; the others hold windows that were joined and cut beforehand.
"""

import json
import sys
import time
import types
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import torch

LENGTH, ROWS, SKIPPED = 2048, 8, 5


def collate(windows: list[np.ndarray]) -> dict[str, torch.Tensor]:
    """[rows, S + 1] tokens to inputs, targets, segments and positions."""
    tokens = np.stack(windows).astype(np.int64)
    inputs, targets = tokens[:, :-1], tokens[:, 1:].copy()
    ends = inputs == 0
    targets[ends] = -100
    begins = np.zeros(inputs.shape, dtype=np.int32)
    begins[:, 1:] = ends[:, :-1]
    places = np.arange(LENGTH, dtype=np.int32)
    found = {
        "tokens": np.ascontiguousarray(inputs),
        "targets": targets,
        "segments": np.cumsum(begins, axis=1, dtype=np.int32),
        "positions": places - np.maximum.accumulate(begins * places, axis=1),
    }
    return {name: torch.from_numpy(part) for name, part in found.items()}


def without_torchvision() -> None:
    """mosaicml-streaming imports torchvision for its picture readers, which nothing here uses and which has no build
    for the torch that both sides share."""
    for name in ("", ".transforms", ".transforms.functional", ".datasets"):
        module = types.ModuleType(f"torchvision{name}")
        module.__spec__, module.__path__, module.__file__ = ModuleSpec(module.__name__, None), [], None
        vars(module)["__getattr__"] = lambda name: type(name, (), {})
        sys.modules[module.__name__] = module


def streams(folder: Path) -> list[np.ndarray]:
    return [np.load(path) for path in sorted(folder.glob("*.npy"))]


def windows_of(stream: np.ndarray) -> np.ndarray:
    """[samples, S + 1]: the stream joined and cut."""
    count = (len(stream) - 1) // LENGTH
    return np.lib.stride_tricks.sliding_window_view(stream, LENGTH + 1)[::LENGTH][:count]


def streaming(folder: Path, weights: list[float]) -> Iterable[dict[str, torch.Tensor]]:
    """mosaicml-streaming: MDS shards, streams with proportions."""
    without_torchvision()
    from streaming import MDSWriter, Stream, StreamingDataset

    place = folder / "mds"
    if not place.exists():
        for number, stream in enumerate(streams(folder)):
            with MDSWriter(out=str(place / f"{number:03d}"), columns={"tokens": "ndarray:uint16"}) as out:
                for window in windows_of(stream):
                    out.write({"tokens": np.ascontiguousarray(window)})
    parts = [Stream(local=str(place / f"{n:03d}"), proportion=weight) for n, weight in enumerate(weights)]
    data = StreamingDataset(streams=parts, batch_size=ROWS, shuffle=True, shuffle_algo="py1s")
    return torch.utils.data.DataLoader(data, ROWS, collate_fn=lambda rows: collate([row["tokens"] for row in rows]))


def litdata(folder: Path, weights: list[float]) -> Iterable[dict[str, torch.Tensor]]:
    """LitData: chunks of tokens, a combined dataset with weights."""
    from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset, TokensLoader
    from litdata.streaming.cache import Cache

    place = folder / "lit"
    if not place.exists():
        for number, stream in enumerate(streams(folder)):
            (place / f"{number:03d}").mkdir(parents=True)
            cache = Cache(str(place / f"{number:03d}"), chunk_bytes=1 << 22, item_loader=TokensLoader(LENGTH + 1))
            cache[0] = torch.from_numpy(stream.astype(np.int32))
            cache.done()
            cache.merge()
    parts = [
        StreamingDataset(str(place / f"{n:03d}"), item_loader=TokensLoader(LENGTH + 1), shuffle=True, drop_last=False)
        for n in range(len(weights))
    ]
    mixed = CombinedStreamingDataset(parts, seed=0, weights=weights, iterate_over_all=False)
    return StreamingDataLoader(
        mixed, batch_size=ROWS, collate_fn=lambda rows: collate([np.asarray(row) for row in rows])
    )


def datasets(folder: Path, weights: list[float]) -> Iterable[dict[str, torch.Tensor]]:
    """Hugging Face datasets with torch's DataLoader: documents interleaved, joined and cut on the way."""
    from datasets import Dataset, interleave_datasets, load_from_disk

    place = folder / "hf"
    if not place.exists():
        for number, stream in enumerate(streams(folder)):
            pieces = np.split(stream, np.flatnonzero(stream == 0) + 1)[:-1]
            rows = {"ids": [piece.astype(np.int32) for piece in pieces]}
            Dataset.from_dict(rows).save_to_disk(place / f"{number:03d}")
    parts = [load_from_disk(place / f"{n:03d}").with_format("numpy").shuffle(seed=0) for n in range(len(weights))]
    sizes = np.array([stream.size / len(part) for stream, part in zip(streams(folder), parts, strict=True)])
    chances = np.array(weights) / sizes  # of documents, where the weights are of tokens
    mixed = interleave_datasets(
        parts, probabilities=(chances / chances.sum()).tolist(), seed=0, stopping_strategy="all_exhausted"
    )

    class Packed(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[np.ndarray]:
            left = np.empty(0, dtype=np.int32)
            for row in mixed:
                left = np.concatenate([left, row["ids"]])
                while len(left) > LENGTH:
                    yield left[: LENGTH + 1]
                    left = left[LENGTH:]

    return torch.utils.data.DataLoader(Packed(), ROWS, collate_fn=collate)


def main() -> None:
    torch.set_num_threads(1)
    peer, folder, steps = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    weights = json.loads((folder / "weights.json").read_text())
    batches = iter({"streaming": streaming, "litdata": litdata, "datasets": datasets}[peer](folder, weights))
    for _ in range(SKIPPED):
        next(batches)  # start-up is not what is compared
    began_s = time.perf_counter()
    tokens = sum(next(batches)["tokens"].numel() for _ in range(steps))
    print(tokens / (time.perf_counter() - began_s))


if __name__ == "__main__":
    main()
