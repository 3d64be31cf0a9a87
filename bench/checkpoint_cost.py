"""How long training waits for its checkpoints: snapshots beside one memory copy, saves in the background beside DCP's.

Run: python bench/checkpoint_cost.py [--folder DIR] [--gb 0.1 0.4 1] [--ranks 1 4] [--pairs 7] [--growth] [--json]

In each pair, on one disk, with all ranks at once (the slowest counts):

- *copy*: one warm copy of as many bytes from memory to memory, and *snapshot*: of the state into shared memory;
- *async*: all that the step path waits for in a save with a snapshot of its own, from the order to the commit, and
  *reuse*: the same where the step's snapshot was taken already; *DCP*: until its `async_save` returns, which is all
  that it blocks when the save before has ended. While a save is written the ranks sleep, for both alike;
- *restore*: find the memory at its host, map it, agree on the step and copy it into tensors that exist.

``--growth``: 50 saves of the smallest state, and what they added to the memory of rank and writer.
"""

import argparse
import json
import secrets
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checkpoint_throughput import make_tree, manifest, slowest

from argosy.checkpoint.background import BackgroundSave
from argosy.checkpoint.plan import make_plan
from argosy.checkpoint.snapshot import Arrangement, Snapshots, hold
from argosy.checkpoint.snapshot_host import SnapshotHost
from argosy.checkpoint.state import Tree
from argosy.parallel.control import sum_over_ranks

STEP_S = 0.02
"""Between two looks at a save that is being written."""
BARS = {"snapshot ÷ copy": 1.5, "async ÷ DCP": 0.45}
NOTE = {"training": {"step": 1, "loss_tokens": 1 << 30, "eval_losses": [3.0] * 20}}


@dataclass
class Bench:
    """One rank's state with everything that keeps it."""

    tree: Tree
    state: Arrangement
    host: SnapshotHost
    rank: int
    ranks: int
    group: dist.ProcessGroup | None
    ours: Path
    theirs: Path

    def __post_init__(self) -> None:
        self.identity = self.state.identity(rank=self.rank)
        self.snapshots = Snapshots(self.state, hold(self.host, self.rank, self.identity, self.state.bytes, None), 1)
        self.background = BackgroundSave(self.snapshots, make_plan(self.tree, self.group), self.ours, 1, self.group)
        self.background.writer.start()
        self.source, self.target = (torch.full((self.state.bytes // 4,), float(n)) for n in range(2))
        self.step = 0
        # DCP makes collectives from a thread of its own: on a group that the ranks use meanwhile it would hang.
        self.group_of_dcp = None if self.group is None else dist.new_group(backend="gloo")

    def copy(self) -> float:
        return self.timed(lambda: self.target.copy_(self.source))

    def snapshot(self) -> float:
        self.step += 1
        return self.timed(lambda: self.snapshots.take(self.step, NOTE))

    def save(self, *, reuse: bool) -> float:
        self.step += 1
        if reuse:
            self.snapshots.take(self.step, NOTE)
        blocked_s = self.timed(self._begin)
        while self.background.step is not None:
            time.sleep(STEP_S)
            began_s = time.perf_counter()
            report = self.background.report
            blocked_s += time.perf_counter() - began_s
            sums = sum_over_ranks(report, self.group)  # a step makes this sum anyway
            began_s = time.perf_counter()
            ended = self.background.advance(*sums)
            blocked_s += time.perf_counter() - began_s
            assert ended is None or ended.error is None, ended
        return slowest(blocked_s, self.group)

    def _begin(self) -> None:
        index = self.snapshots.take(self.step, NOTE)
        assert index is not None
        self.background.begin(manifest(self.step, self.ranks), index)

    def dcp(self) -> float:
        futures = []
        blocked_s = self.timed(
            lambda: futures.append(
                dcp.async_save(
                    dict(self.tree),
                    storage_writer=dcp.FileSystemWriter(self.theirs),
                    process_group=self.group_of_dcp,
                    no_dist=self.group is None,
                )
            )
        )
        while not futures[0].done():
            time.sleep(STEP_S)
        futures[0].result()
        return blocked_s

    def restore(self) -> float:
        def work() -> None:
            again = Snapshots(self.state, hold(self.host, self.rank, self.identity, self.state.bytes, None), 1)
            step = again.newest_common(self.group)
            assert step is not None
            again.restore(step)

        return self.timed(work)

    def timed(self, work: Callable[[], Any]) -> float:
        if self.group is not None:
            dist.barrier(self.group)
        began_s = time.perf_counter()
        work()
        return slowest(time.perf_counter() - began_s, self.group)

    def clear(self) -> None:
        """Give the disk back; all ranks wait for it."""
        if self.rank == 0:
            for folder in (self.ours, self.theirs):
                shutil.rmtree(folder, ignore_errors=True)
        if self.group is not None:
            dist.barrier(self.group)

    def memory_bytes(self) -> int:
        """Private memory of this rank and its writer."""
        process = self.background.writer._process
        assert process is not None
        return sum(psutil.Process(pid).memory_full_info().uss for pid in (None, process.pid))


def pairs_on_rank(bench: Bench, pairs: int) -> list[dict[str, float]]:
    """Times of each pair [s]; the first, which warms, is left out."""
    rows = []
    for number in range(pairs + 1):
        both = [("copy", bench.copy), ("snapshot", bench.snapshot)] * 3
        row = {"copy": float("inf"), "snapshot": float("inf")}
        for name, work in both:  # a copy takes so little that a stroke of the machine would be all of it
            row[name] = min(row[name], work())
        saves: list[tuple[str, Callable[[], float]]] = [("async", lambda: bench.save(reuse=False)), ("dcp", bench.dcp)]
        for name, work in saves if number % 2 else reversed(saves):
            row[name] = work()
        row["reuse"] = bench.save(reuse=True)
        row["restore"] = bench.restore()
        bench.clear()
        rows.append(row)
    return rows[1:]


def growth_on_rank(bench: Bench, saves: int = 50) -> list[dict[str, float]]:
    for _ in range(5):
        bench.save(reuse=False)
        bench.clear()
    before = bench.memory_bytes()
    for _ in range(saves):
        bench.save(reuse=False)
        bench.clear()
    return [{"saves": saves, "before": before, "grown": bench.memory_bytes() - before}]


def _rank(
    pipe: Any, rank: int, ranks: int, folder: Path, state_bytes: int, name: str, pairs: int, growth: bool
) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    group = None
    if ranks > 1:
        store = dist.FileStore(str(folder / "store"), ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=120))
        group = dist.group.WORLD
    tree = make_tree(state_bytes, ranks, 1.0)
    with SnapshotHost.start(name) as host:
        bench = Bench(tree, Arrangement(tree), host, rank, ranks, group, folder / "ours", folder / "theirs")
        pipe.send(growth_on_rank(bench) if growth else pairs_on_rank(bench, pairs))
        bench.background.close()


def on_ranks(ranks: int, gigabytes: float, where: Path, pairs: int, growth: bool) -> list[dict[str, float]]:
    context, name = get_context("spawn"), f"argosy-bench/{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory(dir=where, prefix="checkpoint-cost-") as folder, SnapshotHost.start(name) as host:
        pipes, processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            arguments = (theirs, rank, ranks, Path(folder), int(gigabytes * 1e9), name, pairs, growth)
            processes.append(context.Process(target=_rank, args=arguments))
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        try:
            rows = [pipe.recv() for pipe in pipes]
            for process in processes:
                process.join()
        finally:
            for process in processes:
                process.kill()
            host.stop()
    return max(rows, key=lambda row: row[0].get("grown", 0.0))


def line(ranks: int, gigabytes: float, rows: list[dict[str, float]]) -> dict[str, Any]:
    """Medians [s], and the median of each pair's ratio with the middle half of them."""
    figures: dict[str, Any] = {"ranks": ranks, "gb": gigabytes, "pairs": len(rows)}
    figures |= {f"{name}_s": statistics.median(row[name] for row in rows) for name in rows[0]}
    for label, above, below in (("snapshot ÷ copy", "snapshot", "copy"), ("async ÷ DCP", "async", "dcp")):
        ratios = sorted(row[above] / row[below] for row in rows)
        quarter = len(ratios) // 4
        figures[label] = (statistics.median(ratios), ratios[quarter], ratios[-1 - quarter])
    return figures


def text(figures: dict[str, Any]) -> str:
    ratios = "  ".join("{} {:.2f} ({:.2f} to {:.2f})".format(label, *figures[label]) for label in BARS)
    times = "  ".join(
        f"{name} {figures[f'{name}_s'] * 1e3:.1f} ms"
        for name in ("copy", "snapshot", "async", "dcp", "reuse", "restore")
    )
    return f"{figures['gb']:>4g} GB  {figures['ranks']} ranks  {ratios}  |  {times}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--gb", type=float, nargs="+", default=[0.1, 0.4, 1.0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for ranks in options.ranks:
        if options.growth:
            (row,) = on_ranks(ranks, min(options.gb), options.folder, 0, True)
            found.append({"ranks": ranks, "gb": min(options.gb)} | row)
            said = f"{min(options.gb):g} GB, {ranks} ranks: {row['saves']:.0f} saves grew a rank and its writer by "
            said += f"{row['grown'] / 1e6:.1f} MB of {row['before'] / 1e6:.0f} MB"
            print(said if not options.json else "", end="\n" if not options.json else "", flush=True)
            continue
        for gigabytes in options.gb:
            found.append(line(ranks, gigabytes, on_ranks(ranks, gigabytes, options.folder, options.pairs, False)))
            if not options.json:
                print(text(found[-1]), flush=True)
    if options.json:
        print(json.dumps({"schema": "argosy.bench.checkpoint_cost/1", "bars": BARS, "rows": found}))


if __name__ == "__main__":
    main()
