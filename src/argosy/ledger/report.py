"""Builds the report of a run: books, money, speed and learning, put side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from argosy.errors import InputError
from argosy.journal.reader import OPEN, Journal, JournalFile, Row, read_run
from argosy.ledger.attempt_rows import attempt_rows, how_it_ended
from argosy.ledger.attempts import Source, sources
from argosy.ledger.books import Books, keep_books
from argosy.ledger.clocks import RunClock
from argosy.ledger.compact import Compact, Compacted, compact
from argosy.ledger.compact_books import compact_books
from argosy.ledger.cost import CostCurve, account_money
from argosy.ledger.health import health
from argosy.ledger.learning import evaluation_curve, last_of_kind, own_windows, speed, training_curve
from argosy.ledger.memory import memory_rows
from argosy.ledger.modules import module_rows
from argosy.ledger.money import PriceList, money_text
from argosy.ledger.noise import noise_scale
from argosy.ledger.pace import PaceOf, pace
from argosy.ledger.paid import paid_devices
from argosy.ledger.pictures import compact_heat_map, heat_map, step_picture
from argosy.ledger.refusals import Refusals
from argosy.ledger.report_model import LAYERS, Identity, Line, References, Report, Sample, Utilisation, Work
from argosy.ledger.timeline import SLICES, RunHours, time_line
from argosy.ledger.utilisation import flops_per_token, known_peak, utilisation
from argosy.ledger.verdict import judge
from argosy.ledger.worth import Valued, save_interval, source_tokens, worth
from argosy.recipe.flops import parameter_count
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder

PACE_RANKS = 64
"""Ranks of an attempt that are looked at for who changed the pace."""

_BASIS = {
    "self_declared": "paid time as the launcher declared it, which cannot see what came before or after it",
    "scheduler": "paid time from the scheduler",
    "bill": "paid time from the bill",
    "implied": "nobody declared paid time: from each process's start to its last sign of life",
}


def build_report(
    run_path: Path,
    *,
    tolerant: bool = False,
    paid: Sequence[Row] | None = None,
    window_ns: tuple[int, int] | None = None,
) -> Report:
    """The report of the run in folder `run_path` as it stands now; `paid` are rows that replace those of its paid file.

    With `window_ns` (wall-clock ns since the epoch, from and until) only what was paid in between is in accounts and
    money, with the fates that the whole run gave it; tables of attempts and steps are of the whole run.

    Raises InputError when it is no run, has no attempt yet, or has records that contradict each other; with
    `tolerant` those are left out and listed, their time in `unattributed.torn`.
    """
    run = RunFolder.open(run_path)
    kept = None if paid is not None or window_ns or tolerant else Compact.find(run.path)
    journal = read_run(run.path, only=kept.leaders if kept else None)
    if paid is not None:
        journal = replace(journal, paid=list(paid))
    if not journal.files:
        unread = f", and none of {len(journal.headless)} journal files can be read" if journal.headless else ""
        raise InputError(f"nothing to report: no attempt has begun{unread}", where=str(run_path))
    prices = PriceList.from_records(journal.prices, where=str(run.price_file))
    if kept and prices.boundaries():  # a price that changes cuts the books, and these cannot be cut
        kept, journal = None, read_run(run.path)
    ranks, agents = sources(journal, RunClock(journal), None)
    hours = _run_hours(journal, [*ranks, *agents], tolerant)
    edges_ns = _edges(hours)
    if kept:
        books = compact_books(kept, journal)
    else:
        books = keep_books(journal, tolerant=tolerant, edges_ns=edges_ns, window_ns=window_ns)
    if window_ns and not books.paid_ns:
        raise InputError("nothing was paid in that time", where=str(run_path), do="choose another --since and --until")
    leaders = _first_of_each_attempt(ranks)
    files = [leader.file for leader in leaders.values()]
    nanos, total_nanos = account_money(journal, books, prices, tolerant=tolerant)
    cost_at = CostCurve(((name, device.intervals) for name, device in books.devices.items()), prices)
    recipe, corpus = run.recipe(), last_of_kind(files, "corpus") or {}
    vocab_size = corpus.get("vocab_size") or recipe.vocab_size
    work = _work(books)
    speeds = {attempt: speed(leader.file) for attempt, leader in leaders.items()}
    own_ns = sum(rate.own_ns for rate in speeds.values())
    train_curve = training_curve(books.visits, leaders, cost_at)
    peak = known_peak([row for file in files for row in file.of_kind("peak")], recipe.precision.compute)
    return Report(
        run=Identity(
            id=run.info.id,
            name=run.info.name,
            path=str(run_path),
            state=how_it_ended(books.attempts[-1], is_last=True, live=books.live),
            devices=sum(device.count for device in books.devices.values()),
            parameters=parameter_count(recipe.model, vocab_size) if vocab_size else None,
        ),
        as_of=utc(books.as_of_ns),
        verdict=judge(books.accounts, books.paid_ns, books.imputed, books.causes),
        paid_ns=books.paid_ns,
        money=money_text(total_nanos),
        currency=prices.currency,
        price_note=prices.describe(),
        basis=_basis(books),
        accounts=_accounts(books, nanos),
        layers=_layers(books, nanos),
        crosstab=_crosstab(books),
        at_risk_ns=books.accounts.get("useful.provisional", 0),
        overlapped_ns=sum(books.overlapped.values()),
        steps=work.kept_steps + work.at_risk_steps,
        tokens=work.kept_tokens + work.at_risk_tokens,
        work=work,
        attempts=attempt_rows(books, leaders, speeds),
        tokens_per_s=sum(rate.tokens for rate in speeds.values()) * 1e9 / own_ns if own_ns else None,
        utilisation=_utilisation(books, files, recipe, vocab_size, {a: r.tokens_per_s for a, r in speeds.items()}),
        train_curve=train_curve,
        eval_curve=evaluation_curve(books.visits, leaders.values(), cost_at),
        references=References(corpus.get("gzip_bpb"), corpus.get("xz_bpb"), corpus.get("held_out_bytes")),
        samples=[
            Sample(row.get("s"), row.get("prompt", ""), row.get("text", ""))
            for file in files
            for row in file.of_kind("sample")
        ],
        timeline=time_line(books, leaders, _first_of_each_attempt(agents), hours),
        refusals=books.refusals,
        causes=books.causes,
        modules=module_rows(journal.ranks, recipe, vocab_size, peak.flops_per_s if peak else None),
        memory=memory_rows(journal.ranks),
        pace=[row for attempt in leaders if (row := _pace(journal, attempt))],
        heat_map=compact_heat_map(kept, leaders) if kept else heat_map(ranks),
        step_picture=step_picture(ranks),
        health=health(books.visits, leaders),
        noise=[
            found
            for attempt in leaders
            if (found := noise_scale([file for file in journal.ranks if file.attempt == attempt]))
        ],
        worth=worth(
            source_tokens(journal.ranks),
            train_curve,
            recipe.objective.target_loss,
            books.accounts,
            _save_interval(books, files),
        ),
        notes=[*books.notes, *([f"cut to {utc(window_ns[0])} until {utc(window_ns[1])}"] if window_ns else [])],
    )


def compact_run(run_path: Path) -> Compacted:
    """Write the run's `compact/`, cut as its report's picture over time is."""
    run = RunFolder.open(run_path)
    journal = read_run(run.path)
    ranks, agents = sources(journal, RunClock(journal), None)
    return compact(run.path, _edges(_run_hours(journal, [*ranks, *agents], False)))


def utc(wall_ns: int) -> str:
    """A moment as ISO 8601, to the second."""
    return datetime.fromtimestamp(wall_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _run_hours(journal: Journal, files: Sequence[Source], tolerant: bool) -> RunHours:
    devices = paid_devices(journal, RunClock(journal), files, None, Refusals(tolerant))
    return RunHours(interval for device in devices for interval in device.intervals)


def _first_of_each_attempt(files: Sequence[Source]) -> dict[int, Source]:
    """The lowest rank, or the first host's agent, of each attempt in order: it says what is the same on all."""
    first: dict[int, Source] = {}
    for source in files:  # by attempt, and rank or name
        first.setdefault(source.file.attempt, source)
    return first


def _edges(hours: RunHours) -> list[int]:
    """Run time at the inner bounds of the slices."""
    return [hours.back(at) for at in hours.edges(SLICES)[1:-1]] if hours.length_ns else []


def _accounts(books: Books, nanos: Mapping[str, int | None]) -> dict[str, Line]:
    return {
        name: Line(
            ns, ns / books.paid_ns, money_text(nanos[name]), books.imputed.get(name, 0), books.estimated.get(name, 0)
        )
        for name, ns in books.accounts.items()
    }


def _layers(books: Books, nanos: Mapping[str, int | None]) -> dict[str, Line]:
    layers = {}
    for layer in LAYERS:
        inside = [name for name in books.accounts if name.partition(".")[0] == layer]
        ns = sum(books.accounts[name] for name in inside)
        known = [value for name in inside if (value := nanos[name]) is not None]
        money = money_text(sum(known)) if len(known) == len(inside) else None
        imputed_ns = sum(books.imputed.get(name, 0) for name in inside)
        estimated_ns = sum(books.estimated.get(name, 0) for name in inside)
        layers[layer] = Line(ns, ns / books.paid_ns if books.paid_ns else 0.0, money, imputed_ns, estimated_ns)
    return layers


def _pace(journal: Journal, attempt: int) -> PaceOf | None:
    files = [file for file in journal.ranks if file.attempt == attempt][:PACE_RANKS]
    return pace(files, [own_windows(file) for file in files])


def _save_interval(books: Books, files: Sequence[JournalFile]) -> Valued:
    """Lengths of saves and the time between them, on the first rank of each attempt."""
    saves: list[int] = []
    apart: list[int] = []
    for file in files:
        spans = file.spans
        mine = np.array([spans.names[phys] == "ckpt_block" for phys in spans.phys], bool) & (spans.t1 != OPEN)
        saves += (spans.t1 - spans.t0)[mine].tolist()
        apart += np.diff(spans.t0[mine]).tolist()
    failures = sum(1 for attempt in books.attempts if attempt.ended and not attempt.clean)
    interval_s = float(np.median(apart)) / 1e9 if apart else None
    return save_interval(
        saves, failures, books.paid_ns, sum(device.count for device in books.devices.values()), interval_s
    )


def _crosstab(books: Books) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for (phys, fate), ns in books.crosstab.items():
        table.setdefault(phys, {})[fate] = ns
    return table


def _work(books: Books) -> Work:
    visits, tokens = books.visits_by_fate(), books.tokens_by_fate()
    return Work(
        kept_steps=visits["kept"],
        at_risk_steps=visits["kept_provisional"],
        lost_visits=visits["lost_failure"] + visits["discarded_decision"],
        skipped_visits=visits["skipped"],
        kept_tokens=tokens["kept"],
        at_risk_tokens=tokens["kept_provisional"],
        lost_tokens=tokens["lost_failure"] + tokens["discarded_decision"],
    )


def _utilisation(
    books: Books,
    files: Sequence[JournalFile],
    recipe: Recipe,
    vocab_size: int | None,
    tokens_per_s: Mapping[int, float | None],
) -> Utilisation:
    """Of the newest attempt that took a step: ranks and machines may have changed between attempts."""
    stepped = [row for row in books.attempts if tokens_per_s.get(row.attempt) is not None]
    peaks: list[dict[str, Any]] = [record for file in files for record in file.of_kind("peak")]
    return utilisation(
        tokens_per_s[stepped[-1].attempt] if stepped else None,
        flops_per_token(recipe, vocab_size),
        stepped[-1].world if stepped else None,
        known_peak(peaks, recipe.precision.compute),
        str(files[-1].header.get("layout", {}).get("recompute", "none")) if files else "none",
    )


def _basis(books: Books) -> str:
    found = sorted({interval.basis for device in books.devices.values() for interval in device.intervals})
    return "; ".join(_BASIS.get(basis, f"paid time from {basis}") for basis in found) or "nothing was paid"
