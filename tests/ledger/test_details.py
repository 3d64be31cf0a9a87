"""Modules, memory, steadiness, health and worth: each against a truth that the test made up."""

import random

import pytest
from growing_run import GrowingRun, committed, event, step
from written import S, WrittenRun

from argosy.laws.repetition import MUENNIGHOFF
from argosy.ledger.books import keep_books
from argosy.ledger.curve_point import Point
from argosy.ledger.details import alerts, detail_tables
from argosy.ledger.memory import memory_rows
from argosy.ledger.report import build_report
from argosy.ledger.worth import SourceTokens, rates, repeated_data, save_interval

MS = 1_000_000


def grown(
    tmp_path, *, steps=80, seconds=lambda number: {"forward": 0.1}, loss=lambda number: 5.0 - number / 50, more=()
):
    """A run of one rank whose steps take what `seconds` says."""
    run = GrowingRun(tmp_path / "run", world=1)
    run.begin(0)
    at = 0.0
    for number in range(steps):
        taken = {name: round(value, 4) for name, value in seconds(number).items()}
        length = round(sum(taken.values()), 4)
        run.all(step(number, at, at + length, loss=loss(number), **taken))
        at = round(at + length, 4)
    run.all(*more)
    run.write(0, committed(steps, at))
    run.end(at, exit=0)
    return build_report(run.path)


def test_a_change_of_pace_is_found_with_its_step_and_culprit(tmp_path):
    dice = random.Random(3)
    report = grown(
        tmp_path,
        seconds=lambda n: {"forward": 0.1 + dice.gauss(0, 0.002), "data_wait": 0.06 if n >= 50 else 0.01},
    )
    (change,) = report.pace[0].changes
    assert abs(change.step - 50) <= 1
    assert (change.phase, change.rank) == ("data_wait", 0)
    assert any("data_wait on rank 0" in text for text in alerts(report))


def test_steps_that_only_scatter_have_no_change(tmp_path):
    dice = random.Random(4)
    report = grown(tmp_path, seconds=lambda n: {"forward": 0.1 * (1 + abs(dice.gauss(0, 0.2)))})
    assert report.pace[0].changes == []
    assert report.pace[0].p99_s > report.pace[0].p50_s


@pytest.mark.parametrize(("per_sample", "alert"), [(3 * 10**6, True), (0, False)])
def test_a_leak_of_memory_is_an_alert_and_noise_is_none(tmp_path, per_sample, alert):
    dice = random.Random(5)
    known = {"parameters": 10**6, "gradients": 10**6, "optimizer": 2 * 10**6}
    used = [10**8 + number * per_sample + dice.randint(0, 400_000) for number in range(40)]
    samples = [event("memory", 1, s=n, rss=rss, peak_rss=max(used[: n + 1]), **known) for n, rss in enumerate(used)]
    (row,) = grown(tmp_path, more=samples).memory
    assert (row.alert is not None) is alert
    assert row.peak == max(used)
    assert row.other == max(used) - 4 * 10**6


def test_retries_and_fragmentation_of_a_device_are_alerts():
    run = WrittenRun()
    for rank, (allocated, retries) in enumerate(((50, 0), (90, 3), (95, 0))):
        file = run.rank(1, 0, rank, world=3)
        file.put("memory", t=0, s=0, rss=7, peak_rss=9, allocated=allocated, peak=96, reserved=100, retries=retries)
    fragmented, retried, fine = memory_rows(run.journal().ranks)
    assert "fragmentation" in (fragmented.alert or "")
    assert "3 allocations" in (retried.alert or "")
    assert (fine.alert, fine.peak) == (None, 96)


def test_learning_that_stalls_spikes_or_skips_is_said(tmp_path):
    assert grown(tmp_path / "a", steps=200).health.alerts == []
    dice = random.Random(6)
    stalled = grown(
        tmp_path / "b", steps=200, loss=lambda n: (9.0 if n == 150 else max(3.0, 5.0 - n / 40)) + dice.gauss(0, 0.01)
    )
    assert any("has not fallen" in text for text in stalled.health.alerts)
    assert any("1 spikes" in text for text in stalled.health.alerts)


def test_repeated_data_is_worth_what_the_law_says():
    once = [SourceTokens("a", 100, 100, MUENNIGHOFF.effective_tokens(100, 100))]
    assert repeated_data(once, 10**9).ns == 0
    four = [SourceTokens("a", 400, 100, MUENNIGHOFF.effective_tokens(400, 100))]
    found = repeated_data(four, 10**9)
    assert found.ns == pytest.approx((1 - 0.931) * 10**9, rel=0.01)  # research/ledger.md 2.5: 0.931 at 4 epochs
    assert "Muennighoff" in found.why
    assert repeated_data([], 10**9).ns is None


def test_the_save_interval_is_judged_by_daly_and_not_without_failures():
    args = ([2 * S] * 5, 4, 4 * 3600 * S, 4)
    assert save_interval(args[0], 0, *args[2:], 100.0).ns is None
    rare, best = (save_interval(*args, every_s).ns for every_s in (900.0, 60.0))
    assert rare is not None
    assert best is not None
    assert rare > best >= 0


def test_marginal_loss_is_the_slope_of_the_last_third():
    curve = [
        Point(n, n, n * 3_600_000_000_000, str(n * 2), 5 - (0.5 * n if n < 20 else 10 - 0.1 * (n - 20)))
        for n in range(30)
    ]
    per_money, per_hour = rates(curve)
    assert per_hour == pytest.approx(-0.1)
    assert per_money == pytest.approx(-0.05)


def test_padding_and_full_recomputation_leave_useful():
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.rows[0]["layout"] = {"recompute": "full"}
    for number in range(6):
        rank.step(number, number * S, (number + 1) * S, forward=200 * MS, backward=600 * MS, optimizer=200 * MS)
        rank.rows[-1]["n"] = [50, 10, 40]
    rank.ckpt(6, 6 * S).close(6 * S)
    run.agent(1, 0).end(6 * S)
    run.paid(0, 6 * S)
    books = keep_books(run.journal())
    assert books.accounts["compute.recompute"] == 6 * 200 * MS
    assert books.accounts["compute.padding"] == 6 * (200 + 400) * MS * 4 // 10
    assert books.estimated == {"compute.recompute": 6 * 200 * MS}


def test_profiles_divide_their_step_and_those_after_it_and_are_marked():
    run = WrittenRun()
    rank = run.rank(1, 0)
    for number in range(10):
        rank.step(number, number * S, (number + 1) * S, forward=S)
        if number in (4, 8):
            gap = 250 if number == 4 else 500
            division = [["forward", "forward", (1000 - gap) * MS], ["forward", "launch_gap", gap * MS]]
            rank.put(
                "device", t=number * S + 900 * MS, s=number, m=division, b=[["blocks.0", 5, 6, 0, 7]], cost=9, ev=1
            )
    rank.ckpt(10, 10 * S).close(10 * S)
    run.agent(1, 0).end(10 * S)
    run.paid(0, 10 * S)
    books = keep_books(run.journal())
    pooled = 375  # of both profiles, for the step after the second
    assert books.accounts["compute.launch_gap"] == (4 * 250 + 250 + 3 * 250 + 500 + pooled) * MS
    assert books.estimated == {"compute.launch_gap": (7 * 250 + pooled) * MS}


def test_time_without_a_processor_is_contention_or_a_gap(tmp_path):
    run = WrittenRun()
    rank = run.rank(1, 0)
    for number in range(6):
        rank.step(number, number * S, (number + 1) * S, forward=600 * MS, backward=400 * MS)
        rank.rows[-1]["u"] = [300 * MS, 100 * MS]
    rank.ckpt(6, 6 * S).close(6 * S)
    run.agent(1, 0).end(6 * S)
    run.paid(0, 6 * S)
    accounts = keep_books(run.journal()).accounts
    assert accounts == {
        "compute.contention": 600 * MS,
        "compute.launch_gap": 1200 * MS,
        "useful.model_math": 4200 * MS,
    }


def test_every_detail_has_a_table(tmp_path):
    samples = [
        event("memory", 1, s=0, rss=10**8, peak_rss=10**8, parameters=1, gradients=1, optimizer=2),
        event("data", 1, s=0, src="code", tokens=400, loss_tokens=400, pad=0, first_seen=100),
    ]
    report = grown(tmp_path, more=samples)
    assert {table.id for table in detail_tables(report)} == {"pace", "memory", "worth"}
    assert report.worth.effective_tokens == pytest.approx(MUENNIGHOFF.effective_tokens(400, 100))
