"""Days and money: limits, failures, spot prices, and what the laws say."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from argosy.errors import UsageError
from argosy.hardware.cluster import Price
from argosy.hardware.cluster_file import load_cluster
from argosy.laws.loss import EPOCH_REPLICATION
from argosy.planner import quantities
from argosy.planner.answer import Goal, answer, links, what_if
from argosy.planner.economics import account, compute_optimal, spot_break_even, tokens_for_loss
from argosy.planner.question import from_preset

Q = from_preset("llama3-8b", accelerators=64, sequence_length=None, batch_tokens=2**22, dtype="bf16", tokens=None)
C = replace(load_cluster("64xH100"), price=Price(Fraction(2), "USD", "2026-08", "a test", spot=Fraction(1)))
STEP_S, TOKENS = 6.6, 10**12


def test_without_failures_only_work_is_paid() -> None:
    steps = -(-TOKENS // 2**22)
    books = account(Q, replace(C, failures_per_day=1e-12), STEP_S, TOKENS)
    assert books.steps == steps
    assert books.wall_s == pytest.approx(steps * STEP_S, rel=1e-4)
    assert books.cost == pytest.approx(64 * 2 * steps * STEP_S / 3600, rel=1e-4)


def test_failures_cost_about_half_an_interval_each() -> None:
    books = account(Q, replace(C, failures_per_day=0.02), STEP_S, TOKENS)
    failures = books.wall_s / books.mtbf_s
    lost = failures * (books.interval_s / 2 + C.restart_s) + books.work_s / books.interval_s * books.save_s
    assert books.wall_s - books.work_s == pytest.approx(lost, rel=0.1)
    assert books.interval_s == pytest.approx((2 * books.save_s * books.mtbf_s) ** 0.5, rel=0.1)  # Young's first order


def test_failures_faster_than_restarts_are_an_error() -> None:
    with pytest.raises(UsageError, match="no work survives"):
        account(Q, replace(C, failures_per_day=1000.0, restart_s=3600.0), STEP_S, TOKENS)


def test_spot_breaks_even_where_both_cost_the_same() -> None:
    per_day = spot_break_even(Q, C, STEP_S, TOKENS)
    assert C.price is not None
    at = replace(C, price=replace(C.price, spot_interruptions_per_day=per_day))
    spot, reserved = account(Q, at, STEP_S, TOKENS, spot=True), account(Q, C, STEP_S, TOKENS)
    assert spot.cost == pytest.approx(reserved.cost, rel=1e-3)
    assert spot.wall_s > reserved.wall_s


def test_tokens_for_a_loss_is_the_inverse_of_the_law() -> None:
    tokens = tokens_for_loss(Q.parameters, 2.1)
    assert EPOCH_REPLICATION.loss(Q.parameters, tokens) == pytest.approx(2.1, abs=1e-6)
    with pytest.raises(UsageError, match="below what the data allows"):
        tokens_for_loss(Q.parameters, 1.0)
    with pytest.raises(UsageError, match=r"use about [\d.e+]+B parameters"):
        tokens_for_loss(Q.parameters, 1.85)


def test_the_compute_optimal_size_beats_others_of_the_same_compute() -> None:
    best = compute_optimal(2e16, 86400.0 * 20, 0.97)
    for factor in (0.5, 2.0):
        assert EPOCH_REPLICATION.loss(best.parameters * factor, best.tokens / factor) > best.loss
    assert 6 * best.parameters * best.tokens == pytest.approx(best.compute_flops)


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        (Goal(TOKENS, budget=1e4), r"--budget: 1000B tokens cost .* USD, not 10,000 USD → nearest: [\d.]+B tokens in"),
        (
            Goal(TOKENS, deadline_s=86400.0),
            r"--deadline: [\d.]+ days are needed, not 1, .* nearest: .* or about \d+ accel",
        ),
        (Goal(TOKENS, budget=1e3, deadline_s=86400.0), "the deadline of 1 days is missed too"),
        (Goal(budget=1.0), "less than one interval between saves .* nothing would be kept"),
        (Goal(TOKENS, budget=1.0), "less than one interval between saves .* use at least"),
    ],
)
def test_limits_that_cannot_be_kept_name_the_nearest_plan(goal: Goal, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        answer(Q, C, goal)


def test_a_budget_alone_buys_as_many_tokens_as_it_pays() -> None:
    found = answer(Q, C, Goal(budget=20_000.0))
    assert found.books is not None
    assert found.books.cost is not None
    assert 0.98 * 20_000 < found.books.cost <= 20_000


def test_a_budget_without_a_price_is_refused() -> None:
    with pytest.raises(UsageError, match="a budget needs a price"):
        answer(Q, replace(C, price=None), Goal(TOKENS, budget=1e6))


def test_more_accelerators_take_fewer_days_and_a_day_has_a_price() -> None:
    rows = what_if(Q, load_cluster("16xH100"), TOKENS)
    assert [row.count for row in rows] == sorted(row.count for row in rows)
    assert all(a.days > b.days for a, b in pairwise(rows))
    assert 160 in [row.count for row in rows]  # ten times as many
    assert all(row.cost_per_day_saved is not None for row in rows[1:])


def test_links_of_axes() -> None:
    from argosy.layout.layout import Layout

    crossing = links(Layout(fsdp=4, zero=3, tp=8, pp=2, schedule="1f1b"), C)
    assert crossing == {"pp": "network", "fsdp": "network", "tp": "scale-up link"}
    mixed = links(Layout(fsdp=16, zero=3, tp=4), C)
    assert mixed["fsdp"] == "scale-up link inside a domain, network between"


@pytest.mark.parametrize(("text", "value"), [("15T", 15 * 10**12), ("300_000", 300_000), ("2e12", 2 * 10**12)])
def test_counts(text: str, value: int) -> None:
    assert quantities.count(text, "--tokens") == value


def test_sums_and_durations() -> None:
    assert quantities.money("$50k", "--budget") == 50_000
    assert quantities.money("1.5M", "--budget") == 1_500_000
    assert quantities.duration_s("30d", "--deadline") == 30 * 86_400
    for wrong in ("soon", "-3d", "0d", ""):
        with pytest.raises(UsageError, match="--deadline"):
            quantities.duration_s(wrong, "--deadline")
