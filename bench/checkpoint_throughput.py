"""Saving with digests and loading with verification, beside DCP without either, in alternating pairs on one disk.

Run: python bench/checkpoint_throughput.py [--folder DIR] [--gb 0.1 0.4 1] [--ranks 1 4] [--pairs 7] [--json]

A save ends when every file and folder is flushed to the device and the checkpoint has its name. A load reads into
tensors that exist, out of a warm page cache: Argosy's finds the newest checkpoint, digests every byte of it, has all
ranks agree, and digests what it reads once more; DCP's reads. The state is fp32, sharded over the ranks in dim 0, of 24
matrices and 24 vectors. The slower rank counts.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from argosy.checkpoint.find import find
from argosy.checkpoint.load import load
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.plan import make_plan
from argosy.checkpoint.save import save_plan
from argosy.checkpoint.state import Tree

MATRICES = 24
LIMIT_S = 30.0
"""A pair that takes longer is broken off."""


def make_tree(bytes_in_all: int, ranks: int, value: float) -> Tree:
    """This rank's part of a state of so many bytes."""
    width = 1024
    rows = bytes_in_all // 4 // MATRICES // width // ranks * ranks
    mesh = init_device_mesh("cpu", (ranks,)) if ranks > 1 else None

    def part(*shape: int) -> torch.Tensor:
        if mesh is None:
            return torch.full(shape, value)
        return DTensor.from_local(torch.full((shape[0] // ranks, *shape[1:]), value), mesh, [Shard(0)])

    shapes = {f"w{n}": (rows, width) for n in range(MATRICES)} | {f"b{n}": (width,) for n in range(MATRICES)}
    return {"model": {name: part(*shape) for name, shape in shapes.items()}}


def pairs_on_rank(rank: int, ranks: int, folder: Path, state_bytes: int, pairs: int) -> list[dict[str, float]]:
    """Times of each pair [s], the slower rank's."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch.distributed")
    group = None
    if ranks > 1:
        store = dist.FileStore(str(folder / "store"), ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=120))
        group = dist.group.WORLD
    tree = make_tree(state_bytes, ranks, 1.0)
    plan = make_plan(tree, group)
    rows = []
    for number in range(pairs + 1):
        ours, theirs = folder / "ours", folder / "theirs"
        work: dict[str, Callable[[], Any]] = {
            "argosy_save": partial(save_plan, ours, plan, manifest(number + 1, ranks), group),
            "dcp_save": partial(dcp_save, theirs, tree, group),
            "argosy_load": partial(load_newest, ours, tree, group),
            "dcp_load": partial(dcp_load, theirs, tree, group),
        }
        order = list(work) if number % 2 else ["dcp_save", "argosy_save", "dcp_load", "argosy_load"]
        times = {}
        for name in sorted(order, key=lambda name: name.endswith("load")):
            times[name] = slowest(timed(work[name], group), group)
        if number:  # the first pair warms
            rows.append(times)
        if group is not None:
            dist.barrier()
        if rank == 0:
            shutil.rmtree(ours)
            shutil.rmtree(theirs)
        if group is not None:
            dist.barrier()
    return rows


def load_newest(checkpoints: Path, tree: Tree, group: dist.ProcessGroup | None) -> None:
    found = find(checkpoints, group=group)
    assert found is not None
    load(*found, tree, group)


def dcp_save(folder: Path, tree: Tree, group: dist.ProcessGroup | None) -> None:
    dcp.save(dict(tree), storage_writer=dcp.FileSystemWriter(folder), process_group=group, no_dist=group is None)


def dcp_load(folder: Path, tree: Tree, group: dist.ProcessGroup | None) -> None:
    dcp.load(dict(tree), storage_reader=dcp.FileSystemReader(folder), process_group=group, no_dist=group is None)


def manifest(step: int, ranks: int) -> Manifest:
    return Manifest("bench", step, 1, ranks, {}, "", "", "", time.time(), {})


def timed(work: Callable[[], Any], group: dist.ProcessGroup | None) -> float:
    if group is not None:
        dist.barrier()
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def slowest(seconds: float, group: dist.ProcessGroup | None) -> float:
    if group is None:
        return seconds
    slow = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slow, dist.ReduceOp.MAX)
    return float(slow)


def _rank(pipe: Any, *arguments: Any) -> None:
    pipe.send(pairs_on_rank(*arguments))


def measure(ranks: int, gigabytes: float, pairs: int, where: Path) -> dict[str, Any]:
    """One line of the table: median times, and the median ratio with the middle half of the ratios."""
    context = get_context("spawn")
    with tempfile.TemporaryDirectory(dir=where, prefix="checkpoint-throughput-") as folder:
        ours, theirs = context.Pipe()
        processes = [
            context.Process(
                target=_rank, args=(theirs, rank, ranks, Path(folder), int(gigabytes * 1e9), pairs), daemon=True
            )
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        rows = ours.recv()
        for process in processes:
            process.join(LIMIT_S)
    result: dict[str, Any] = {"ranks": ranks, "gigabytes": gigabytes, "pairs": pairs}
    for what in ("save", "load"):
        ratios = [row[f"dcp_{what}"] / row[f"argosy_{what}"] for row in rows]
        low, _, high = statistics.quantiles(ratios, n=4)
        result[what] = {
            "argosy_s": statistics.median(row[f"argosy_{what}"] for row in rows),
            "dcp_s": statistics.median(row[f"dcp_{what}"] for row in rows),
            "ratio": statistics.median(ratios),
            "middle_half": [low, high],
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    parser.add_argument("--gb", type=float, nargs="+", default=[0.1, 0.4, 1.0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [measure(n, gb, arguments.pairs, arguments.folder) for n in arguments.ranks for gb in arguments.gb]
    if arguments.json:
        print(json.dumps({"schema": "argosy.bench.checkpoint_throughput/1", "rows": rows}))
        return
    print(f"{'ranks':>5} {'GB':>5} {'':>5} {'argosy s':>9} {'DCP s':>7} {'ratio':>6}  middle half")
    for row in rows:
        for what in ("save", "load"):
            it = row[what]
            low, high = it["middle_half"]
            print(
                f"{row['ranks']:>5} {row['gigabytes']:>5} {what:>5} {it['argosy_s']:>9.3f} {it['dcp_s']:>7.3f} "
                f"{it['ratio']:>6.2f}  {low:.2f}–{high:.2f}"
            )


if __name__ == "__main__":
    main()
