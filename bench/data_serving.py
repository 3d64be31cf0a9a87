"""Serving packed batches with document masks from a mixture of 100 sources, beside other loaders on the same corpus.

Run: python bench/data_serving.py [--json] [--tokens 20000000] [--memory]

One process and one thread each, page cache warm, alternating rounds; medians, and intervals from the rounds. Every side
gives [8, 2048] int64 inputs and targets, segments and positions, of documents in random order from 100 sources with
random weights. Peers run in environments of their own (`python bench/peers/install.py streaming litdata datasets`);
`bench/peers/serve.py` says how each is used. Also: the seek to sample 10^9, and with --memory the anonymous memory of a
process that reads 1 GB and 20 GB of shards (sparse files, checked blocks).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from argosy.data.bins import Bins
from argosy.data.loader import Loader
from argosy.data.mixture import Mixture, Stage
from argosy.data.packing import BestFit, Packing, Split
from argosy.data.samples import SampleOrder
from argosy.data.shard_writer import ShardWriter
from argosy.data.shards import TokenShards

SOURCES, LENGTH, ROWS = 100, 2048, 8
ROUNDS = 5
PEERS = ("streaming", "litdata", "datasets")


def write_sources(folder: Path, tokens: int) -> tuple[float, ...]:
    """Documents of log-normal length in 100 sources, as shards and, for the peers, as arrays; the weights."""
    generator = np.random.default_rng(0)
    for number in range(SOURCES):
        left, documents = tokens // SOURCES, []
        while left > 0:
            size = int(np.clip(generator.lognormal(5.7, 1.0), 8, 8000))
            documents.append(generator.integers(1, 50_000, size, dtype=np.uint16))
            left -= size + 1
        place = folder / f"{number:03d}"
        with ShardWriter(place, 50_000, 0, 1 << 24) as writer:
            for ids in documents:
                writer.add(ids, 4 * ids.size)
        stream = np.concatenate([np.append(ids, np.uint16(0)) for ids in documents])
        np.save(folder / f"{number:03d}.npy", stream)
    weights = tuple(generator.dirichlet([1.0] * SOURCES).tolist())
    (folder / "weights.json").write_text(json.dumps(weights))
    return weights


def our_loader(folder: Path, weights: tuple[float, ...], packing: str) -> Loader:
    packings: list[Packing] = []
    for number in range(SOURCES):
        shards = TokenShards.open(folder / f"{number:03d}")
        if packing == "best_fit":
            packings.append(BestFit(shards, LENGTH, Bins.of(shards, LENGTH, folder / "bins", lambda line: None)))
        else:
            packings.append(Split(shards, LENGTH, masks=True))
    order = SampleOrder(
        0,
        [one.samples for one in packings],
        [f"{number:03d}" for number in range(SOURCES)],
        Mixture([Stage(0, weights)], [None] * SOURCES),
    )
    return Loader(packings, order, LENGTH, masks=True)


def our_rate(loader: Loader, steps: int, first: int) -> float:
    """Tokens per second over some steps."""
    began_s = time.perf_counter()
    for step in range(first, first + steps):
        batch = loader.batch(((step * ROWS, ROWS),))
        assert batch.segments is not None
    return steps * ROWS * LENGTH / (time.perf_counter() - began_s)


def peer_rate(peer: str, folder: Path, steps: int) -> tuple[float | None, str]:
    """Tokens per second of a peer, or why there is none."""
    here = Path(__file__).parent
    python = here.parent / ".venv-bench" / peer / "bin" / "python"
    if not python.exists():
        return None, f"is not installed: python bench/peers/install.py {peer}"
    command = [str(python), str(here / "peers" / "serve.py"), peer, str(folder), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return float(done.stdout.strip().splitlines()[-1]), ""


def seek_s(make: Callable[[], SampleOrder]) -> float:
    """From a new order to what stands at index 10^9."""
    order = make()
    began_s = time.perf_counter()
    order.draw(10**9, ROWS)
    return time.perf_counter() - began_s


MEMORY = """
import json, sys
from pathlib import Path
import numpy as np
from argosy.data.loader import Loader
from argosy.data.packing import Split
from argosy.data.samples import SampleOrder
from argosy.data.shards import TokenShards
def anonymous():
    line = next(l for l in open("/proc/self/status") if l.startswith("RssAnon"))
    return int(line.split()[1]) * 1024
before = anonymous()
shards = TokenShards.open(Path(sys.argv[1]))
packing = Split(shards, 2048, masks=True)
loader = Loader([packing], SampleOrder(0, [packing.samples]), 2048, masks=True)
most = 0
for step in range(1500):
    loader.batch(((step * 8, 8),))
    if step % 50 == 0:
        most = max(most, anonymous())
print(json.dumps({"process": most, "loader": most - before}))
"""


def memory(nbytes: int) -> dict[str, int]:
    """RssAnon of a process that reads 12,000 samples all over so many bytes of shards."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "s"
        _write_sparse(folder, nbytes)
        done = subprocess.run([sys.executable, "-c", MEMORY, str(folder)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _write_sparse(folder: Path, nbytes: int) -> None:
    """Shards of zeros that take no room on the disk; a real small one is the pattern for all."""
    tokens = 1 << 26
    with ShardWriter(folder, 50_000, 0, tokens) as writer:
        writer.add(np.zeros(tokens - 1, dtype=np.uint16), 4 * tokens)
    manifest = json.loads((folder / "manifest.json").read_text())
    shard, count = manifest["shards"][0], max(1, nbytes // (2 * tokens))
    for number in range(1, count):
        with (folder / f"tokens-{number:05d}.bin").open("wb") as file:
            file.truncate(2 * tokens)
        for what in ("sums", "ends"):
            (folder / f"{what}-{number:05d}.bin").write_bytes((folder / f"{what}-00000.bin").read_bytes())
    manifest |= {"shards": [shard] * count, "tokens": tokens * count, "documents": count}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, object] = {"schema": 1}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        weights = write_sources(folder, arguments.tokens)
        loaders = {name: our_loader(folder, weights, name) for name in ("best_fit", "split")}
        rates: dict[str, list[float]] = {name: [] for name in (*loaders, *PEERS)}
        reasons: dict[str, str] = {}
        for loader in loaders.values():
            our_rate(loader, 100, 0)  # the page cache, and the checks of first reads
        for round_ in range(arguments.rounds):
            for name, loader in loaders.items():
                rates[name].append(our_rate(loader, 150, 100 * round_))
            for peer in PEERS:
                rate, reason = (None, reasons[peer]) if peer in reasons else peer_rate(peer, folder, 60)
                if rate is None:
                    reasons[peer] = reason
                else:
                    rates[peer].append(rate)
        order = loaders["best_fit"].order
        fresh = lambda: SampleOrder(0, order.samples, order.names, order.mixture)  # noqa: E731
        found["seek_s"] = statistics.median(seek_s(fresh) for _ in range(15))
    found["tokens_per_s"] = {
        name: {"median": statistics.median(each), "low": min(each), "high": max(each)}
        for name, each in rates.items()
        if each
    }
    others = [statistics.median(rates[peer]) for peer in PEERS if rates[peer]]
    if others:
        found["ratio_to_best_peer"] = statistics.median(rates["best_fit"]) / max(others)
    found["missing"] = reasons
    if arguments.memory:
        found["rss_anon_bytes"] = {f"{size >> 30} GB": memory(size) for size in (1 << 30, 20 << 30)}
    if arguments.json:
        print(json.dumps(found))
        return
    for name, rate in found["tokens_per_s"].items():  # type: ignore[attr-defined]
        print(
            f"{name:>10} {rate['median'] / 1e6:8.1f} M tokens/s ({rate['low'] / 1e6:.1f} to {rate['high'] / 1e6:.1f})"
        )
    for peer, reason in reasons.items():
        print(f"{peer:>10} {reason}")
    if others:
        print(f"best_fit is {found['ratio_to_best_peer']:.1f} times the best peer")
    print(f"seek to sample 10^9: {found['seek_s'] * 1e3:.2f} ms")  # type: ignore[operator]
    for size, rss in found.get("rss_anon_bytes", {}).items():  # type: ignore[attr-defined]
        print(
            f"{size} of shards: RssAnon {rss['process'] / 1e6:.0f} MB, {rss['loader'] / 1e6:.0f} MB of it the loader's"
        )


if __name__ == "__main__":
    main()
