"""The sampled steps of a run as a Chrome trace, which Perfetto and chrome://tracing open.

One process per rank, two tracks in it: the phases in their order, and the collectives, each from when it was issued.
Slices on one track must nest, so collectives under way together are spread over lanes. Times are microseconds from
the first moment in the file, as decimals of integer nanoseconds.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from argosy.journal.collectives import calls
from argosy.journal.line import lines
from argosy.journal.reader import read_run
from argosy.ledger.attempts import Source, sources
from argosy.ledger.clocks import RunClock

PHASES, COLLECTIVES = 0, 1


def trace_of_run(run_path: Path) -> str:
    """The trace of a run's folder, as JSON."""
    journal = read_run(run_path)
    ranks, _ = sources(journal, RunClock(journal), None)
    return orjson.dumps(chrome_trace(ranks)).decode()


def chrome_trace(ranks: Sequence[Source]) -> dict[str, Any]:
    """The trace of all sampled steps in rank files."""
    slices: list[tuple[int, int, int, int, str, dict[str, Any]]] = []  # begin, end, process, track, name, arguments
    names: dict[tuple[int, int | None], str] = {}
    for source in ranks:
        rank = source.file.rank or 0
        process = source.file.attempt * 1_000_000 + rank
        names[process, None] = f"attempt {source.file.attempt} rank {rank} on {source.file.header['host']}"
        names[process, PHASES] = "phases"
        shift = source.offset_ns
        for step, line in lines(source.file.events, source.file.phys):
            for stretch in line:
                if stretch.phys:
                    slices.append(
                        (stretch.t0_ns + shift, stretch.t1_ns + shift, process, PHASES, stretch.phys, {"step": step})
                    )
        free: list[int] = []  # when each lane of collectives is free again
        for call in sorted(calls(source.file.events), key=lambda call: call.issued_ns):
            lane = next((n for n, until in enumerate(free) if until <= call.issued_ns), len(free))
            free[lane : lane + 1] = [call.done_ns]
            names[process, COLLECTIVES + lane] = "collectives" if lane == 0 else f"collectives {lane + 1}"
            about = {"step": call.step, "axis": call.axis, "group": call.group, "number": call.number}
            about |= {"bytes": call.nbytes, "wait_ns": call.done_ns - call.waited_ns}
            at = call.issued_ns + shift, call.done_ns + shift
            slices.append((*at, process, COLLECTIVES + lane, call.operation, about))
    origin = min((begin for begin, *_ in slices), default=0)
    events: list[dict[str, Any]] = []
    for (process, track), name in names.items():
        what = {"name": "process_name"} if track is None else {"name": "thread_name", "tid": track}
        events.append(what | {"ph": "M", "pid": process, "args": {"name": name}})
    for begin, end, process, track, name, about in sorted(slices, key=lambda found: found[:4]):
        place = {"pid": process, "tid": track, "ts": (begin - origin) / 1000, "dur": (end - begin) / 1000}
        events.append({"name": name, "ph": "X", "cat": "argosy"} | place | {"args": about})
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"origin_wall_ns": str(origin)}}
