"""A simulated run, written and read by the ledger, has the accounts that the simulator counted, to the second."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from courses import JOB, KINDS, OFTEN

from argosy.journal.reader import read_run
from argosy.ledger.books import Books, keep_books
from argosy.ledger.report import build_report
from argosy.simulator.course import Course
from argosy.simulator.failures import DAY_S
from argosy.simulator.job import Price
from argosy.simulator.outcome import Outcome
from argosy.simulator.scenario import Scenario
from argosy.simulator.write import write_run


def course(scenario: Scenario, seed: int = 3, *, detailed: bool = True) -> Outcome:
    s = scenario
    return Course(s.job, s.failures, s.policies, horizon_s=s.horizon_s, seed=seed, detailed=detailed).run()


def books(scenario: Scenario, outcome: Outcome, folder: Path) -> Books:
    return keep_books(read_run(write_run(outcome, scenario.job, "simulated", folder).path))


@pytest.mark.parametrize("name", KINDS)
def test_the_ledger_finds_what_was_simulated(name: str, tmp_path: Path) -> None:
    scenario = KINDS[name]
    outcome = course(scenario)
    assert sum(outcome.accounts.values()) == pytest.approx(outcome.paid_s, rel=1e-9)
    found = books(scenario, outcome, tmp_path / "run")
    assert found.paid_ns / 1e9 == pytest.approx(outcome.paid_s, rel=1e-9)
    assert sum(found.accounts.values()) == found.paid_ns
    assert not found.refusals
    assert found.restarts <= outcome.record.restarts
    for account in {*found.accounts, *outcome.accounts}:
        # warm-up is the ledger's own guess from uneven first blocks, taken out of the time that it is excess of
        ours, theirs = outcome.accounts.get(account, 0.0), found.accounts.get(account, 0) / 1e9
        assert theirs == pytest.approx(ours, abs=1e-6 * outcome.paid_s), account
    tokens = found.tokens_by_fate()
    assert tokens["kept"] == outcome.steps * scenario.job.tokens_per_step
    assert found.visits_by_fate()["kept_provisional"] == 0


@pytest.mark.parametrize("name", KINDS)
def test_details_change_nothing(name: str) -> None:
    plain, detailed = (course(KINDS[name], detailed=kept) for kept in (False, True))
    assert plain.steps == detailed.steps
    assert plain.record.lost_steps == detailed.record.lost_steps
    assert plain.accounts == pytest.approx(detailed.accounts, rel=1e-9)


def test_the_report_prices_it_exactly_also_at_prices_that_change(tmp_path: Path) -> None:
    prices = (Price(Fraction("2.5")), Price(Fraction("1.75"), DAY_S), Price(Fraction("4"), 2 * DAY_S))
    scenario = Scenario(replace(JOB, prices=prices), OFTEN, 3 * DAY_S)
    outcome = course(scenario)
    report = build_report(write_run(outcome, scenario.job, "priced", tmp_path / "run").path)
    assert report.money is not None
    assert float(Fraction(report.money)) == pytest.approx(float(outcome.money or 0), rel=1e-9)
    assert report.run.devices == scenario.job.devices
    assert report.run.parameters is None  # not simulated, so not known
    assert report.tokens == outcome.steps * scenario.job.tokens_per_step
    assert sum(line.share for line in report.layers.values()) == pytest.approx(1.0)
    assert len(report.attempts) == len(outcome.record.attempts)
