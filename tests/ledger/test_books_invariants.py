"""What must hold for every journal (research/ledger.md 3.12), over runs drawn at random."""

import copy
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_runs import RandomRun, moved
from written import WALL, WrittenRun

from argosy.journal.reader import collect, read_run
from argosy.ledger.books import Books, keep_books

SEEDS = st.integers(0, 2**32)


def figures(books: Books) -> dict[str, object]:
    """All that a report would print."""
    return {
        "paid": books.paid_ns,
        "crosstab": books.crosstab,
        "accounts": books.accounts,
        "imputed": books.imputed,
        "devices": {name: device.accounts for name, device in books.devices.items()},
        "attempts": [attempt.accounts for attempt in books.attempts],
        "visits": books.visits_by_fate(),
        "postings": [(p.legs, p.why, p.reverses) for p in books.postings],
    }


def check_sums(books: Books) -> None:
    assert sum(books.accounts.values()) == books.paid_ns
    assert sum(books.phys.values()) == books.paid_ns
    assert sum(books.fates.values()) == books.paid_ns
    assert sum(device.paid_ns for device in books.devices.values()) == books.paid_ns
    assert sum(sum(attempt.accounts.values()) for attempt in books.attempts) == books.paid_ns
    assert min(books.crosstab.values(), default=0) >= 0
    for posting in books.postings:
        assert sum(ns for _, ns in posting.legs) == 0
    for device in books.devices.values():
        assert sum(device.accounts.values()) == device.paid_ns


def test_a_thousand_random_runs_sum_exactly() -> None:
    for seed in range(1000):
        run = RandomRun(seed).run
        books = keep_books(run.journal())
        check_sums(books)
        opened = {row["dev"]: row["t"] for row in run.paid_rows if row["ph"] == "open"}
        closed = {row["dev"]: row["t"] for row in run.paid_rows if row["ph"] == "close"}
        assert books.paid_ns == sum(closed[dev] - opened[dev] for dev in opened)


@given(SEEDS)
@settings(max_examples=25)
def test_order_of_files_and_records_changes_nothing(seed: int) -> None:
    run = RandomRun(seed).run
    expected = figures(keep_books(run.journal()))
    dice = random.Random(seed)
    journal = run.journal()
    shuffled = {file.name: dice.sample(file.rows, len(file.rows)) for file in run.files}
    for files in (journal.ranks, journal.agents):
        files[:] = [found for file in files if (found := collect(shuffled[file.name], file.name))]
        dice.shuffle(files)
    dice.shuffle(journal.paid)
    assert figures(keep_books(journal)) == expected


@given(SEEDS)
@settings(max_examples=25)
def test_splitting_a_paid_interval_or_a_span_changes_nothing(seed: int) -> None:
    run = RandomRun(seed).run
    expected = figures(keep_books(run.journal()))
    dice = random.Random(seed)
    split = copy.deepcopy(run)
    for row in run.paid_rows:
        if row["ph"] == "close":
            opened = next(r["t"] for r in run.paid_rows if r["dev"] == row["dev"] and r["ph"] == "open")
            at = dice.randint(opened, row["t"])
            for phase in ("close", "open"):
                split.paid_rows.append(row | {"t": at, "wall": at + WALL, "ph": phase})
    for file in split.files:
        for row in [row for row in file.rows if row["k"] == "span" and not row.get("a") and row["t1"]]:
            at = dice.randint(row["t0"], row["t1"])
            file.put("span", **(row | {"id": 10_000 + row["id"], "t0": at, "q": len(file.rows)}))
            row["t1"] = at
    assert figures(keep_books(split.journal())) == expected


@given(SEEDS)
@settings(max_examples=25)
def test_a_span_in_unattributed_time_changes_no_other_account(seed: int) -> None:
    run = RandomRun(seed).run
    before = keep_books(run.journal())
    dice = random.Random(seed)
    for file in (file for file in run.files if file.rank is not None):
        last = file.rows[0]["t"]  # between start-up spans
        for row in [row for row in file.rows if row["k"] == "span" and row["p"].startswith("startup")]:
            if row["t0"] > last:
                begin = dice.randint(last, row["t0"] - 1)
                file.span("startup.rendezvous", begin, dice.randint(begin, row["t0"]))
            last = row["t1"]
    after = keep_books(run.journal())
    new = after.accounts.get("stability.rendezvous", 0)
    expected = Counter(before.accounts)
    expected.subtract({"unattributed.residual": new, "stability.rendezvous": -new})
    assert after.accounts == {name: ns for name, ns in expected.items() if ns}


@given(SEEDS, st.integers(0, 10**15))
@settings(max_examples=25)
def test_another_origin_of_the_monotonic_clock_changes_nothing(seed: int, by: int) -> None:
    run = RandomRun(seed).run
    assert figures(keep_books(moved(run, by).journal())) == figures(keep_books(run.journal()))


@given(SEEDS)
@settings(max_examples=25)
def test_a_missing_file_moves_its_rank_to_no_telemetry_and_nothing_else(seed: int) -> None:
    run = RandomRun(seed).run
    before = keep_books(run.journal())
    ranks = [file for file in run.files if file.rank is not None and file.rows[0]["world"] > 1]
    if not ranks:
        return
    gone = random.Random(seed).choice(ranks)
    run.files.remove(gone)
    after = keep_books(run.journal())
    check_sums(after)
    device = f"h/cpu:{gone.rank}"
    for name, books in before.devices.items():
        if name != device:
            assert after.devices[name].accounts == books.accounts
    attempt = before.attempts[gone.attempt - 1]
    assert after.accounts["unattributed.no_telemetry"] == attempt.end_ns - attempt.start_ns
    # outside of the attempt the device's time is where it was
    for window in ((0, attempt.start_ns), (attempt.end_ns, after.as_of_ns)):
        whole = keep_books(run.journal(), window_ns=window)
        assert "unattributed.no_telemetry" not in whole.accounts


@given(SEEDS)
@settings(max_examples=25)
def test_a_cut_file_changes_its_rank_after_the_cut_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    run = RandomRun(seed).run
    path = run.write(tmp_path_factory.mktemp("run"))
    before = read_run(path)
    ranks = [file for file in run.files if file.rank is not None and file.rows[0]["world"] > 1]
    if not ranks:
        return
    dice = random.Random(seed)
    cut = dice.choice(ranks)
    content = cut.content
    whole_header = content.index(b"\n") + 1
    kept = dice.randint(whole_header, len(content))
    (path / cut.name).write_bytes(content[:kept])
    after = read_run(path)
    books = {"before": keep_books(before), "after": keep_books(after)}
    check_sums(books["after"])
    device = f"h/cpu:{cut.rank}"
    for name, of_device in books["before"].devices.items():
        if name != device:
            assert books["after"].devices[name].accounts == of_device.accounts
    file = next(f for f in after.ranks if f.attempt == cut.attempt and f.rank == cut.rank)
    until = file.last_ns + WALL
    of_device = [keep_books(journal, window_ns=(0, until)).devices[device].accounts for journal in (before, after)]
    assert of_device[0] == of_device[1]


@given(SEEDS)
@settings(max_examples=25)
def test_a_later_report_differs_from_an_earlier_one_by_its_entries_only(seed: int) -> None:
    story = RandomRun(seed)
    if not story.boundaries:
        return
    cut_ns = random.Random(seed).choice(story.boundaries) + WALL
    earlier = keep_books(story.run.journal(), as_of_ns=cut_ns)
    later = keep_books(story.run.journal(), window_ns=(0, cut_ns))
    check_sums(earlier)
    expected = Counter(earlier.accounts)
    for posting in later.postings[2:]:
        if posting.t_ns >= cut_ns:
            expected.update(dict(posting.legs))
    assert later.accounts == {name: ns for name, ns in expected.items() if ns}


@given(SEEDS, st.lists(st.integers(0, 60_000), max_size=4))
@settings(max_examples=25)
def test_books_of_adjacent_windows_sum_to_the_whole(seed: int, cuts: list[int]) -> None:
    journal = RandomRun(seed).run.journal()
    whole = keep_books(journal)
    edges = [0, *(cut + WALL for cut in sorted(cuts)), whole.as_of_ns]
    total: Counter[tuple[str, str]] = Counter()
    for window in pairwise(edges):
        books = keep_books(journal, window_ns=window)
        check_sums(books)
        total.update(books.crosstab)
    assert {cell: ns for cell, ns in total.items() if ns} == whole.crosstab


def test_a_file_cut_at_any_byte_still_sums(tmp_path: Path) -> None:
    run = WrittenRun()
    for r in (0, 1):
        rank = run.rank(1, 0, r, world=2)
        rank.span("startup.import", 0, 300).span("startup.model_init", 300, 500)
        t = rank.steps(0, 4, 500, 1_000)
        rank.ckpt(4, t).close(t).beat(t, 4)
        run.paid(0, t + 10, r)
    run.agent(1, 0, world=2).end(t + 10)
    path = run.write(tmp_path)
    other = keep_books(read_run(path)).devices["h/cpu:0"].accounts
    content = run.files[1].content
    for kept in range(0, len(content), 3):
        (path / run.files[1].name).write_bytes(content[:kept])
        books = keep_books(read_run(path))
        check_sums(books)
        assert books.devices["h/cpu:0"].accounts == other
