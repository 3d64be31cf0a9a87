"""Report of a large run from `compact/`: 10,000 ranks × 2,000 steps unless told otherwise.

    python bench/ledger_compact.py [--ranks 10000] [--steps 2000] [--json]

The tables are written by the same functions that compaction uses, from times drawn at random; the journal has the
launcher's file, rank 0's and the paid time of every device. Timed apart: writing the tables (generation included),
and `argosy report --json` in a process of its own, with its peak memory. The bars: 15 s, 4 GB, 10 bytes a record.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson

from argosy.journal.phys import INDEX, PHYS
from argosy.ledger.compact import SCHEMA, digest, write_cells, write_steps
from argosy.recipe.load import parse_recipe
from argosy.registry.run_folder import RunFolder

S = 10**9
RECIPE = '[run]\nname = "large"\n[batch]\ntokens = 512\n[objective]\ntokens = {tokens}\n'
STEP_NS = 5 * S
PHASES = {
    "forward": 1.5,
    "backward": 2.6,
    "optimizer": 0.2,
    "data_wait": 0.05,
    "comm.transfer.fsdp": 0.3,
    "comm.wait": 0.3,
}


def lines(file: Path, rows: list[dict]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(
        b"".join(orjson.dumps({"q": q, **row}, option=orjson.OPT_APPEND_NEWLINE) for q, row in enumerate(rows))
    )


def make_run(folder: Path, ranks: int, steps: int) -> Path:
    run = RunFolder.create(folder, parse_recipe(RECIPE.format(tokens=512 * steps)))
    attempt = run.claim_attempt()
    end = steps * STEP_NS
    head = {
        "k": "header",
        "v": 2,
        "run": run.info.id,
        "attempt": attempt,
        "world": ranks,
        "host": "h",
        "boot_id": "b",
        "pid": 1,
    }
    head |= {"t": 0, "wall": 1_700_000_000 * S, "boot": 0, "proc_start": 0, "phys": PHYS}
    marks = [{"k": "attempt", "t": 0, "ph": "start"}, {"k": "attempt", "t": end, "ph": "end", "exit": 0}]
    lines(run.agent_file(attempt, "h"), [head | {"rank": None, "device": None}, *marks])
    amounts = [0] * len(INDEX)
    for name in ("forward", "backward", "optimizer"):
        amounts[INDEX[name]] = round(PHASES[name] * S)
    rows = [
        {
            "k": "step",
            "s": s,
            "t0": s * STEP_NS,
            "t1": (s + 1) * STEP_NS,
            "a": amounts[:4],
            "n": [512],
            "l": 3.0,
            "g": 1.0,
            "r": 1e-3,
        }
        for s in range(steps)
    ]
    saved = {"k": "ckpt", "t": end, "id": "x", "s": steps, "tier": "storage", "ph": "committed"}
    lines(run.rank_file(attempt, 0), [head | {"rank": 0, "device": "cpu:0"}, *rows, saved, {"k": "close", "t": end}])
    paid = [
        {"k": "paid", "dev": f"cpu:{r}", "host": "h", "boot_id": "b", "ph": ph, "t": t, "wall": 1_700_000_000 * S + t,
         "basis": "self_declared", "state": "allocated"}
        for r in range(ranks) for ph, t in (("open", 0), ("close", end))
    ]  # fmt: skip
    lines(run.paid_file, paid)
    return run.path


def make_tables(path: Path, ranks: int, steps: int) -> None:
    dice = np.random.default_rng(0)
    folder = path / "compact"
    folder.mkdir()
    cells: dict[str, list] = {name: [] for name in ("device", "attempt", "phys", "fate", "ns")}
    whole, total = steps * STEP_NS, dict.fromkeys((*PHASES, "unattributed"), 0)
    for rank in range(ranks):
        times = {name: int(share * S * steps * dice.uniform(0.98, 1.02)) for name, share in PHASES.items()}
        times["unattributed"] = whole - sum(times.values())
        for name, ns in times.items():
            values = (f"h/cpu:{rank}", 1, name, "kept", ns)
            total[name] += ns
            for column, value in zip(cells, values, strict=True):
                cells[column].append(value)
    write_cells(folder, cells)

    def parts():
        row = np.arange(steps)
        for rank in range(ranks):
            own = dice.normal(4.3e6, 2e4, steps).astype(np.int64)
            yield {
                "attempt": np.ones(steps, np.int64),
                "rank": np.full(steps, rank),
                "row": row,
                "end_us": (row + 1) * (STEP_NS // 1000) + dice.integers(0, 300, steps),
                "own_us": own,
                "comm_us": STEP_NS // 1000 - own - 50_000,
            }

    write_steps(folder, parts())
    edge = [1_700_000_000 * S + whole * i // 60 for i in range(1, 60)]
    slices = [{} for _ in range(60)]
    small = {"schema": SCHEMA, "digest": digest(path), "leaders": {"1": 0}, "edges_ns": edge, "causes": [], "notes": []}
    small |= {"as_of_ns": edge[-1], "imputed": {}, "estimated": {}, "overlapped": {}, "slices": slices}
    (folder / "books.json").write_bytes(orjson.dumps(small))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = make_run(Path(folder) / "run", options.ranks, options.steps)
        begin = time.perf_counter()
        make_tables(path, options.ranks, options.steps)
        written_s = time.perf_counter() - begin
        size = (path / "compact" / "steps.parquet").stat().st_size
        command = [str(Path(sys.executable).with_name("argosy")), "report", str(path), "--json"]
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=True, env=os.environ)
        report_s = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_CHILDREN)
        report = orjson.loads(done.stdout)
    assert report["paid_ns"] == options.ranks * options.steps * STEP_NS
    assert sum(line["ns"] for line in report["accounts"].values()) == report["paid_ns"]
    figures = {
        "ranks": options.ranks,
        "steps": options.steps,
        "write_tables_s": round(written_s, 1),
        "report_s": round(report_s, 2),
        "report_cpu_s": round(peak.ru_utime + peak.ru_stime, 2),
        "report_peak_bytes": peak.ru_maxrss * 1024,
        "bytes_per_record": round(size / (options.ranks * options.steps), 2),
    }
    print(json.dumps(figures, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
