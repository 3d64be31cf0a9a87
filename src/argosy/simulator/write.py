"""Writes a simulated job as the folder of a run, so that `argosy report` reads it like any other.

Devices that did the same at all times share one journal file that stands for them. Steps between two saves are one
record with the number of the last of them, so the report's counts of steps are counts of such blocks; their tokens,
times and fates are exact. Simulated time begins with the year 2000, so that nobody takes it for real.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from argosy import __version__
from argosy.errors import InputError
from argosy.journal.phys import INDEX, PHYS
from argosy.journal.schema import VERSION
from argosy.policy.codec import to_json
from argosy.recipe.load import parse_recipe
from argosy.registry.run_folder import RunFolder
from argosy.simulator.job import Job
from argosy.simulator.outcome import Outcome
from argosy.simulator.record import Attempt, Block, SaveMade, Span

BOOT = "51b01a7e-0000-4000-8000-000000000000"
HOST, SPARES = "simulated", "simulated-spares"
WALL_NS = 946_684_800 * 10**9
"""1 January 2000."""

Row = dict[str, Any]
Timed = tuple[int, int, str, Row]
"""(when it is written, order among those of the same moment, kind, fields)"""


@dataclass(frozen=True)
class Band:
    """Ranks [low, high) of the job, which always do the same."""

    number: int
    low: int
    high: int
    away_number: int | None
    """Which of the replica groups that may be away at once it belongs to."""


def write_run(outcome: Outcome, job: Job, name: str, path: Path) -> RunFolder:
    """Write `outcome` of a detailed course to the new folder `path`.

    Raises UsageError when there is a run already, InputError when it cannot be written.
    """
    assert outcome.record.detailed, "only a detailed course can be written"
    tokens = max(job.tokens_per_step, 2)
    length = next((size for size in (8192, 4096, 2048) if tokens % size == 0), tokens)
    recipe = parse_recipe(
        "",
        (
            f"run.name={name}",
            f"objective.tokens={tokens * max(outcome.steps, 1)}",
            f"batch.tokens={tokens}",
            f"data.sequence_length={length}",
            f"model.max_positions={length}",
            # what is not simulated, such as the vocabulary, stays unknown
            "tokenizer.kind=file",
            "tokenizer.path=simulated",
        ),
    )
    run = RunFolder.create(path, recipe)
    bands = _bands(outcome, job)
    try:
        for number, attempt in enumerate(outcome.record.attempts, start=1):
            later = (made.restored[0] for made in outcome.record.attempts[number:] if made.restored)
            _write_attempt(run, job, number, attempt, next(later, None), bands)
        _write(run.paid_file, _paid(outcome, job, bands))
        _write(run.price_file, _prices(job))
        _write(run.decisions_file, _decisions(outcome))
    except OSError as error:
        raise InputError(f"cannot be written: {os.strerror(error.errno or 0)}", where=str(path)) from None
    return run


def _bands(outcome: Outcome, job: Job) -> list[Band]:
    """Ranks divided wherever one of their worlds, replica groups or unpaid times ends."""
    record, group = outcome.record, job.gpus // job.replica_groups
    away = 1 + max((s.away_group for a in record.attempts for s in a.spans if s.away_group is not None), default=-1)
    edges = {0, job.gpus, *(attempt.world for attempt in record.attempts)}
    edges |= {job.gpus - (number + 1) * group for number in range(away)}
    edges |= {job.gpus - _unpaid(job, paid)[0] for _, paid in record.paid}
    found = []
    for number, (low, high) in enumerate(pairwise(sorted(edges))):
        from_top = (job.gpus - high) // group
        found.append(Band(number, low, high, from_top if from_top < away else None))
    return found


def _unpaid(job: Job, paid: int) -> tuple[int, int]:
    """(of the job's devices, of the spares) that are not paid: spares first, as they took the others' places."""
    missing, spares = job.devices - paid, job.spares * job.per_node
    return max(0, missing - spares), min(missing, spares)


# -- attempts --------------------------------------------------------------------------------------


def _write_attempt(
    run: RunFolder, job: Job, number: int, attempt: Attempt, restored: int | None, bands: Sequence[Band]
) -> None:
    run.attempt_folder(number).mkdir(parents=True)
    agent: list[Timed] = [
        (ns(attempt.start_s), 0, "attempt", {"t": ns(attempt.start_s), "ph": "start"}),
        (
            ns(attempt.end_s),
            9,
            "attempt",
            {"t": ns(attempt.end_s), "ph": "end", "exit": attempt.exit_code, "reason": attempt.reason},
        ),
    ]
    _write_file(run.agent_file(number, HOST), _header(run, number, attempt, None), agent)
    pieces = _merged(attempt, restored)
    for band in bands:
        if band.high <= attempt.world:
            rows = list(_rank(job, attempt, pieces, band))
            _write_file(run.rank_file(number, band.number), _header(run, number, attempt, band), rows)


def _header(run: RunFolder, number: int, attempt: Attempt, band: Band | None) -> Row:
    start = ns(attempt.start_s)
    return {
        "run": run.info.id,
        "attempt": number,
        "rank": None if band is None else band.number,
        "world": attempt.world,
        "device": None if band is None else f"cuda:{band.number}",
        "host": HOST,
        "boot_id": BOOT,
        "pid": 0,
        "t": start,
        "wall": start + WALL_NS,
        "boot": start,
        "proc_start": start,
        "code": __version__,
        "phys": list(PHYS),
        "v": VERSION,
        **({} if band is None else {"stands_for": band.high - band.low}),
    }


@dataclass(frozen=True)
class _Piece:
    """Blocks without a save to storage between them, and the time that copies to memory took meanwhile."""

    block: Block
    copied_s: float


def _merged(attempt: Attempt, restored: int | None) -> list[_Piece]:
    """Blocks as they are written: a copy to memory ends none, unless the job went back to it."""
    copies = {save.step: save for save in attempt.saves if save.tier == "memory"}
    pieces: list[_Piece] = []
    for block in attempt.blocks:
        last = pieces[-1] if pieces else None
        copy = copies.get(block.first)
        if last and copy and block.first != restored and last.block.away == block.away:
            whole = Block(
                last.block.t0_s,
                block.t1_s,
                last.block.first,
                last.block.count + block.count,
                last.block.slow_s + block.slow_s,
                last.block.eval_s + block.eval_s,
                block.away,
            )
            pieces[-1] = _Piece(whole, last.copied_s + copy.t1_s - copy.t0_s)
        else:
            pieces.append(_Piece(block, 0.0))
    return pieces


def _rank(job: Job, attempt: Attempt, pieces: Sequence[_Piece], band: Band) -> Iterator[Timed]:
    """What a band's file holds, in any order."""
    away = [span for span in attempt.spans if span.away_group is not None and span.away_group == band.away_number]

    def here(t0_s: float, t1_s: float) -> bool:
        middle_s = (t0_s + t1_s) / 2
        return not any(span.t0_s <= middle_s < span.t1_s for span in away)

    inside = [(piece.block.t0_s, piece.block.t1_s) for piece in pieces]
    for span in attempt.spans:
        if span in away or (span.away_group is None and here(span.t0_s, span.t1_s)):
            yield _span(span)
    broken = {block.first: block for block in attempt.aborted}
    for block in attempt.aborted:
        if here(block.t0_s, block.t1_s):
            yield from _steps(job, _Piece(block, 0.0), skipped=True)
    for piece in pieces:
        if here(piece.block.t0_s, piece.block.t1_s):
            yield from _steps(job, piece, again=piece.block.first + piece.block.count - 1 in broken)
    for save in attempt.saves:
        if here(save.t0_s, save.t1_s):
            merged = save.tier == "memory" and any(t0_s < save.t0_s < t1_s for t0_s, t1_s in inside)
            yield from _save(attempt, save, merged)
    if attempt.restored is not None:
        step, tier, why = attempt.restored
        t = ns(attempt.restored_s)
        yield t, 0, "restore", {"t": t, "id": f"step-{step}", "to": step, "tier": tier, "why": why}
    t = ns(attempt.alive_s)
    if attempt.exit_code in (0, 75):
        yield t, 9, "close", {"t": t}
    else:  # a sign of life, so that it is known until when it worked
        yield t, 9, "anchor", {"t": t, "wall": t + WALL_NS, "boot": t}


def _span(span: Span) -> Timed:
    return ns(span.t1_s), 1, "span", {"p": span.phase, "t0": ns(span.t0_s), "t1": ns(span.t1_s)}


def _steps(job: Job, piece: _Piece, *, skipped: bool = False, again: bool = False) -> Iterator[Timed]:
    block = piece.block
    t0, t1 = ns(block.t0_s), ns(block.t1_s)
    inside = 0
    # evaluations are spread over the steps, and copies to memory over the block; where exactly changes no account
    for phase, seconds in (("eval", block.eval_s), ("ckpt_block", piece.copied_s)):
        length = min(ns(seconds), t1 - t0 - inside)
        if length:
            end = t1 - inside
            yield t1, 1, "span", {"p": phase, "t0": end - length, "t1": end}
            inside += length
    slow = min(ns(block.slow_s), t1 - t0 - inside)
    work = t1 - t0 - inside - slow
    amounts = [0] * len(PHYS)
    amounts[INDEX["comm.exposed.dp"]] = slow
    left, share_left = work, 1.0
    for phys, share in job.step_phys.items():
        part = left if share >= share_left - 1e-9 else round(left * share / share_left)
        amounts[INDEX[phys]] += part
        left, share_left = left - part, share_left - share
    last = block.first + block.count - 1
    tokens = block.count * job.tokens_per_step
    marks = ({"x": 1} if skipped else {}) | ({"v": 1} if again else {})
    yield t1, 2, "step", {"s": last, "t0": t0, "t1": t1, "a": amounts, "n": [tokens], "steps": block.count, **marks}


def _save(attempt: Attempt, save: SaveMade, merged: bool) -> Iterator[Timed]:
    if merged:
        return
    t0, t1, durable = ns(save.t0_s), ns(save.t1_s), ns(save.durable_s)
    fields = {"id": f"{save.tier}-{save.step}-{t0}", "s": save.step, "tier": save.tier}
    yield t0, 3, "ckpt", {"t": t0, **fields, "ph": "start"}
    yield t1, 4, "span", {"p": "ckpt_block", "t0": t0, "t1": t1}
    if save.durable_s <= attempt.alive_s:
        yield durable, 5, "ckpt", {"t": durable, **fields, "ph": "committed"}


# -- the rest --------------------------------------------------------------------------------------


def _paid(outcome: Outcome, job: Job, bands: Sequence[Band]) -> Iterator[Row]:
    """From when to when each band was paid, and the spares."""
    changes, end = outcome.record.paid, ns(outcome.wall_s)
    spares = job.spares * job.per_node
    spare_edges = sorted({0, spares, *(spares - _unpaid(job, paid)[1] for _, paid in changes)})
    rows = [(HOST, band.number, band.low, band.high, "allocated", 0) for band in bands]
    rows += [(SPARES, i, low, high, "spare", 1) for i, (low, high) in enumerate(pairwise(spare_edges))]
    for host, device, low, high, state, which in rows:
        size = (job.gpus, spares)[which]
        is_open = False
        for t_s, paid in changes:
            wanted = high <= size - _unpaid(job, paid)[which]
            if wanted != is_open:
                yield _paid_row(host, device, ns(t_s), high - low, state, opens=wanted)
                is_open = wanted
        if is_open:
            yield _paid_row(host, device, end, high - low, state, opens=False)


def _paid_row(host: str, device: int, t: int, count: int, state: str, *, opens: bool) -> Row:
    return {
        "k": "paid",
        "dev": f"cuda:{device}",
        "host": host,
        "boot_id": BOOT,
        "ph": "open" if opens else "close",
        "t": t,
        "wall": t + WALL_NS,
        "basis": "the simulator",
        "state": state,
        "n": count,
    }


def _prices(job: Job) -> Iterator[Row]:
    for price in job.prices:
        yield {
            "k": "price",
            "dev": "*",
            "from_wall": ns(price.from_s) + WALL_NS if price.from_s else None,
            "amount": _decimal(price.per_gpu_hour),
            "per": "hour",
            "currency": job.currency,
        }


def _decisions(outcome: Outcome) -> Iterator[Row]:
    for made in outcome.record.decisions:
        yield {
            "k": "decision",
            "wall": ns(made.t_s) + WALL_NS,
            "what": "policy",
            "s": made.step,
            "cause": made.what,
            "event": orjson.loads(to_json(made.event)),
            "action": orjson.loads(to_json(made.action)),
        }


def ns(seconds: float) -> int:
    """Nanoseconds of simulated time."""
    return round(seconds * 1e9)


def _decimal(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else str(value)


def _write_file(file: Path, header: Row, rows: Sequence[Timed]) -> None:
    """A journal file, its records in order of time and with numbers."""
    ordered = sorted(rows, key=lambda row: row[:2])
    ids = iter(range(1, len(ordered) + 1))
    content: list[Row] = [{"k": "header", "q": 0, **header}]
    for number, (_, _, kind, fields) in enumerate(ordered, start=1):
        content.append({"k": kind, "q": number, **({"id": next(ids)} if kind == "span" else {}), **fields})
    _write(file, content)


def _write(file: Path, rows: Iterator[Row] | Sequence[Row]) -> None:
    file.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
