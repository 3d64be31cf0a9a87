"""The runs of a folder joined by device: overlaps refused, idle time found, parts sum to the bill."""

import json
from fractions import Fraction

import pytest
from growing_run import WALL_S, GrowingRun, S, append, committed, step
from test_report_command import argosy

from argosy.errors import InputError
from argosy.ledger.fleet import IDLE, join_runs
from argosy.ledger.runs import run_rows, runs_json, scorecard


def add_run(root, name, begin, end, *, tokens=512, forward=1.0, world=1):
    """A run of one step of `forward` seconds and one checkpoint."""
    run = GrowingRun(root / name, world=world)
    run.begin(begin)
    run.all(step(0, begin, end, loss=3.0, tokens=(tokens, 0, 0), forward=forward))
    run.write(0, committed(1, end))
    run.end(end, exit=0, reason="target reached")
    return run


def bill(root, *intervals, device="cpu:0", host="here"):
    for t0, t1 in intervals:
        stamps = {"t0_wall": (WALL_S + t0) * S, "t1_wall": (WALL_S + t1) * S}
        append(root / "paid.jsonl", {"k": "paid", "dev": device, "host": host, "basis": "bill"} | stamps)


def seconds(fleet):
    return {name: line.ns / S for name, line in fleet.accounts.items()}


def check_sums(fleet):
    assert sum(line.ns for line in fleet.accounts.values()) == fleet.paid_ns
    assert sum(device.paid_ns for device in fleet.devices) == fleet.paid_ns
    if fleet.money is not None:
        assert sum(Fraction(line.money) for line in fleet.accounts.values()) == Fraction(fleet.money)


def test_without_a_bill_the_runs_say_what_was_paid(tmp_path):
    add_run(tmp_path, "one", 0, 4)
    add_run(tmp_path, "two", 10, 14, forward=3.0)
    fleet = join_runs(tmp_path)
    check_sums(fleet)
    assert fleet.paid_ns == 8 * S
    assert seconds(fleet) == {"useful.model_math": 4.0, "unattributed.residual": 4.0}
    assert [(d.name, d.paid_ns, d.idle_ns, d.runs) for d in fleet.devices] == [("here/cpu:0", 8 * S, 0, 2)]


def test_what_the_bill_has_and_no_run_held_is_idle(tmp_path):
    add_run(tmp_path, "one", 0, 4)
    add_run(tmp_path, "two", 10, 14)
    bill(tmp_path, (0, 20))
    bill(tmp_path, (0, 5), device="cpu:7")
    fleet = join_runs(tmp_path)
    check_sums(fleet)
    assert fleet.paid_ns == 25 * S
    assert seconds(fleet)[IDLE] == 12 + 5
    assert fleet.money == "0.025"
    assert [(d.name, d.idle_ns / S) for d in fleet.devices] == [("here/cpu:0", 12), ("here/cpu:7", 5)]
    assert scorecard(fleet).idle_share == 17 / 25


def test_what_a_run_claims_beyond_the_bill_was_not_paid(tmp_path):
    add_run(tmp_path, "one", 0, 4, forward=4.0)
    bill(tmp_path, (1, 3))
    fleet = join_runs(tmp_path)
    check_sums(fleet)
    assert fleet.paid_ns == 2 * S
    assert seconds(fleet) == {"useful.model_math": 2.0}


def test_a_run_that_the_bill_does_not_know_at_all(tmp_path):
    add_run(tmp_path, "one", 0, 4)
    bill(tmp_path, (10, 12))
    fleet = join_runs(tmp_path)
    check_sums(fleet)
    assert seconds(fleet) == {IDLE: 2.0}


def test_two_runs_on_one_device_at_once_are_refused(tmp_path, capsys):
    add_run(tmp_path, "one", 0, 4)
    add_run(tmp_path, "two", 3, 7, forward=4.0)
    with pytest.raises(InputError, match=r"one and two both hold here/cpu:0 for 1\.0 s"):
        join_runs(tmp_path)
    code, out, err = argosy(capsys, "report", str(tmp_path))
    assert (code, out, err.count("\n")) == (66, "", 1)
    fleet = join_runs(tmp_path, tolerant=True)
    check_sums(fleet)
    assert fleet.paid_ns == 7 * S, "the device was paid once"
    assert len(fleet.refusals) == 1
    assert [row.paid_ns for row in run_rows(fleet)] == [4 * S, 3 * S]


def test_a_launcher_that_follows_another_within_a_tick_is_no_overlap(tmp_path):
    add_run(tmp_path, "one", 0, 4)
    add_run(tmp_path, "two", 3.99, 7)
    fleet = join_runs(tmp_path)
    check_sums(fleet)
    assert fleet.paid_ns == 7 * S


def test_the_scorecard_compares_the_newest_run_with_the_earlier_ones(tmp_path):
    add_run(tmp_path, "a", 0, 4, forward=1.0)
    add_run(tmp_path, "b", 10, 14, forward=2.0)
    add_run(tmp_path, "c", 20, 24, forward=3.0, tokens=1024)
    fleet = join_runs(tmp_path)
    card = scorecard(fleet)
    assert card.useful_share == 0.5
    assert card.useful_trend == pytest.approx(0.75 - 0.375)
    assert card.cost_trend == 0.5
    assert card.cost_trend_runs == 2
    assert card.kept_tokens == 2048
    assert card.paid_s_per_million_kept == pytest.approx(12 / 2048 * 1e6)
    assert Fraction(card.money_per_million_kept) == Fraction(round(Fraction("0.012") * 10**15 / 2048), 10**9)


def test_text_and_json_say_the_same(tmp_path, capsys):
    add_run(tmp_path, "one", 0, 4)
    bill(tmp_path, (0, 10))
    content = json.loads(argosy(capsys, "report", str(tmp_path), "--json")[1])
    assert content == json.loads(json.dumps(runs_json(join_runs(tmp_path), tmp_path)))
    assert content["accounts"][IDLE]["ns"] == 6 * S
    text = argosy(capsys, "report", str(tmp_path))[1]
    assert "60.0% of it was paid for no run" in text


def test_runs_in_two_currencies_are_refused(tmp_path):
    add_run(tmp_path, "one", 0, 4)
    run = GrowingRun(tmp_path / "two", price=None)
    run.price("1", currency="EUR")
    with pytest.raises(InputError, match="EUR, USD"):
        join_runs(tmp_path)


def test_time_of_a_run_whose_books_cannot_be_kept_is_not_idle(tmp_path):
    add_run(tmp_path, "one", 0, 4)
    broken = add_run(tmp_path, "two", 10, 14)
    broken.write(0, step(1, 13, 12))  # ends before it begins
    bill(tmp_path, (0, 20))
    fleet = join_runs(tmp_path)
    check_sums(fleet)
    assert seconds(fleet)["unattributed.torn"] == 4
    assert seconds(fleet)[IDLE] == 12
    assert [row.error is None for row in run_rows(fleet)] == [True, False]
