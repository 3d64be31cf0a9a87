"""`make chaos`: the whole sweep, every fault on the first, a middle and the last rank with several seeds.

It appends one line of JSON per trial to a results file, with the commit; a trial that is there for this commit is not
run again, so a sweep that was interrupted goes on, and shards can run on several machines.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from argosy.drill.drill import one_line, trial  # noqa: E402
from argosy.drill.faults import VARIANTS, Variant  # noqa: E402
from argosy.drill.scene import Stage  # noqa: E402
from argosy.errors import StoppedError  # noqa: E402
from tiny_runs import RECIPE, SMALL  # noqa: E402

SETS = tuple(one for one in SMALL if one.split(".")[0] in ("model", "data", "batch"))
SEEDS = 9
"""Trials of a variant; each draws its rank and its step, so that all ranks have their turn."""


def trials(shard: int, shards: int) -> Iterator[tuple[str, Variant, int]]:
    """(key, variant, seed) of this shard, a seed after the other, so that a part of the sweep covers all faults."""
    every = [(f"{one.id} seed {seed}", one, seed) for seed in range(SEEDS) for one in VARIANTS]
    yield from every[shard::shards]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", default="0/1", help="which part of how many, such as 0/4")
    parser.add_argument("--results", type=Path, default=ROOT / "chaos-results.jsonl")
    parser.add_argument("--nproc", type=int, default=4)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no trial after this long")
    options = parser.parse_args()
    shard, shards = map(int, options.shard.split("/"))
    commit = subprocess.check_output(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], text=True).strip()
    done = _done(options.results, commit, options.nproc)
    give_up, failed = time.monotonic() + options.limit_s, 0
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        stage = Stage(Path(folder), RECIPE, options.nproc, options.steps, SETS)
        for key, variant, seed in trials(shard, shards):
            if key in done:
                continue
            if time.monotonic() > give_up:
                print("out of time; the same command goes on", flush=True)
                break
            try:
                found = trial(stage, variant, random.Random(f"{seed} {variant.id}"))
                row = asdict(found) | {"passed": found.passed}
                line = one_line(found)
            except StoppedError as error:
                row, line = {"variant": variant.id, "passed": False, "why": {"run": str(error)}}, f"FAILS {error}"
            failed += not row["passed"]
            print(f"{key}: {line}", flush=True)
            with options.results.open("a") as file:
                file.write(json.dumps({"commit": commit, "nproc": options.nproc, "key": key} | row) + "\n")
    return int(failed > 0)


def _done(results: Path, commit: str, nproc: int) -> set[str]:
    if not results.exists():
        return set()
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return {row["key"] for row in rows if (row["commit"], row["nproc"]) == (commit, nproc)}


if __name__ == "__main__":
    sys.exit(main())
