"""Speed and memory of the ledger: a million spans of a thousand ranks into books, and a million steps.

    python bench/ledger_speed.py [--ranks 1000] [--records 1000] [--json]

Writes journals of real files, reads them (timed apart), keeps the books, and does a part of the spans with a plain
sweep line over Python objects, whose sums must be the same. The bars of the spine: books in 3 s and 1 GB.
"""

import argparse
import heapq
import json
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from argosy.journal.phys import PHYS
from argosy.journal.reader import Journal, read_run
from argosy.ledger.books import Books, keep_books

STEP_NS = 50_000_000
BOOT = "0f4d5b1e-7e2a-4c58-9d3c-0123456789ab"
WALL_NS = 1_700_000_000_000_000_000

Figures = dict[str, float]


def span(rank: int, number: int) -> dict[str, Any]:
    """Evaluations with a save nested in each."""
    jitter = (rank * 7919 + number * 104729) % 1_000_000
    outer = number % 2 == 0
    begin = number * STEP_NS + jitter if outer else (number - 1) * STEP_NS + 10_000_000 + jitter
    length = STEP_NS + 30_000_000 if outer else 20_000_000
    place = {"id": number + 1, "p": "eval" if outer else "ckpt_block", "d": int(not outer)}
    return {"k": "span", "q": number + 1, **place, "t0": begin, "t1": begin + length}


def step(rank: int, number: int) -> dict[str, Any]:
    """A step with eight phases; windows touch."""
    jitter = [(rank * 7919 + (number + i) * 104729) % 1_000_000 for i in (0, 1)]
    phases = [300_000, 12_000_000, 24_000_000, 3_000_000, 90_000, 400_000, 6_000_000 + jitter[1], 200_000]
    window = {"t0": number * STEP_NS + jitter[0], "t1": (number + 1) * STEP_NS + jitter[1]}
    return {"k": "step", "q": number + 1, "s": number, **window, "a": phases, "n": [8192], "l": 3.2}


def write_run(path: Path, ranks: int, records: int, record: Callable[[int, int], dict[str, Any]]) -> None:
    folder = path / "events" / "attempt-1"
    folder.mkdir(parents=True)
    end_ns = (records + 1) * STEP_NS
    for rank in range(ranks):
        rows = [header(rank, ranks), *(record(rank, number) for number in range(records))]
        commit = {"id": f"step-{records}", "s": records, "tier": "storage", "ph": "committed"}
        rows.append({"k": "ckpt", "q": records + 1, "t": end_ns, **commit})
        rows.append({"k": "close", "q": records + 2, "t": end_ns})
        (folder / f"rank-{rank}.jsonl").write_bytes(b"".join(map(line, rows)))
    agent = [header(None, ranks), {"k": "attempt", "q": 1, "t": 0, "ph": "start"}]
    agent.append({"k": "attempt", "q": 2, "t": end_ns, "ph": "end", "exit": 0})
    (folder / "agent-h.jsonl").write_bytes(b"".join(map(line, agent)))
    paid = [
        {"k": "paid", "dev": f"cpu:{rank}", "host": "h", "boot_id": BOOT, "ph": phase, "t": t, "wall": t + WALL_NS}
        for rank in range(ranks)
        for phase, t in (("open", 0), ("close", end_ns))
    ]
    (path / "paid.jsonl").write_bytes(b"".join(map(line, paid)))


def header(rank: int | None, world: int) -> dict[str, Any]:
    who = {"rank": rank, "device": None if rank is None else f"cpu:{rank}", "world": world, "phys": PHYS}
    clock = {"host": "h", "boot_id": BOOT, "pid": 1, "t": 0, "wall": WALL_NS, "boot": 0, "proc_start": 0}
    return {"k": "header", "q": 0, "run": "bench", "attempt": 1, **who, **clock}


def line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def plain_sweep(journal: Journal, ranks: int) -> Counter[str]:
    """Time by phys of the first `ranks` ranks, by the textbook sweep line: a heap of open spans."""
    total: Counter[str] = Counter()
    for file in journal.ranks[:ranks]:
        spans = file.spans
        rows = zip(spans.t0.tolist(), spans.t1.tolist(), spans.depth.tolist(), spans.phys.tolist(), strict=True)
        segments = [(t0, t1, depth, number, spans.names[phys]) for number, (t0, t1, depth, phys) in enumerate(rows)]
        bounds = sorted({t for t0, t1, *_ in segments for t in (t0, t1)})
        segments.sort()
        heap: list[tuple[int, int, int, int, str]] = []
        following = 0
        for begin, end in pairwise(bounds):
            while following < len(segments) and segments[following][0] <= begin:
                t0, t1, depth, number, name = segments[following]
                heapq.heappush(heap, (-depth, -t0, -number, t1, name))
                following += 1
            while heap and heap[0][3] <= begin:
                heapq.heappop(heap)
            if heap:
                total[heap[0][4]] += end - begin
    return total


def measure(ranks: int, records: int, record: Callable[[int, int], dict[str, Any]]) -> tuple[Journal, Books, Figures]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        write_run(path, ranks, records, record)
        begin = time.process_time()
        journal = read_run(path)
        read_s = time.process_time() - begin
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    books = keep_books(journal)
    books_s = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(books.accounts.values()) == books.paid_ns
    figures = {
        "records": ranks * records,
        "ranks": ranks,
        "books_cpu_s": round(books_s, 3),
        "read_cpu_s": round(read_s, 3),
        "peak_process_bytes": peak * 1024,
        "added_by_books_bytes": (peak - before) * 1024,
    }
    return journal, books, figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    _, _, steps = measure(options.ranks, options.records, step)
    journal, books, spans = measure(options.ranks, options.records, span)

    part = max(options.ranks // 20, 1)
    begin = time.process_time()
    plain = plain_sweep(journal, part)
    plain_s = (time.process_time() - begin) / part * options.ranks
    names = {"compute.eval": "eval", "stability.ckpt_block": "ckpt_block"}
    ours: Counter[str] = Counter()
    for file in journal.ranks[:part]:
        accounts = books.devices[f"h/{file.header['device']}"].accounts
        ours.update({names[name]: ns for name, ns in accounts.items() if name in names})
    assert ours == plain, f"{dict(ours)} is not {dict(plain)}"
    spans |= {"plain_python_cpu_s": round(plain_s, 3), "plain_over_books": round(plain_s / spans["books_cpu_s"], 2)}
    print(json.dumps({"spans": spans, "steps": steps}, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
