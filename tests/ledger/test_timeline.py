"""The run over its own hours: pauses cut out, slices that sum to the accounts, attempts as bars."""

from growing_run import GrowingRun, S, committed, event, span, step

from argosy.ledger.paid import Interval
from argosy.ledger.report import build_report
from argosy.ledger.timeline import RunHours


def test_run_hours_stand_still_in_pauses():
    hours = RunHours(
        [Interval(100, 110, "allocated", "bill"), Interval(105, 120, "allocated", "bill"), Interval(200, 230, "a", "b")]
    )
    assert hours.length_ns == 50
    assert hours.pauses == [20]
    assert [hours.of(t) for t in (0, 100, 119, 120, 150, 200, 230, 999)] == [0, 0, 19, 20, 20, 20, 50, 50]
    assert [hours.back(at) for at in (1, 20, 21, 50)] == [101, 120, 201, 230]
    assert hours.edges(5) == [0, 10, 20, 30, 40, 50]


def test_a_killed_run_that_went_on_later(tmp_path):
    run = GrowingRun(tmp_path / "run", world=2)
    run.begin(0)
    run.all(span(1, "startup.import", 0, 2), step(0, 2, 4, forward=2.0), step(1, 4, 6, forward=2.0))
    run.write(0, committed(1, 4.5))
    run.all(step(2, 6, 8, forward=2.0))
    run.end(10, exit=70, signal=9)
    run.begin(100)
    run.all(event("restore", 100, id="step-1", to=1, tier="storage", why="resume"), step(1, 101, 103, forward=2.0))
    run.write(0, committed(2, 103))
    run.end(104, exit=0)
    report = build_report(run.path)
    line = report.timeline
    assert line.length_ns == 14 * S
    assert line.pauses == [10 * S]
    assert {name: sum(times) for name, times in line.accounts.items()} == {
        name: account.ns for name, account in report.accounts.items()
    }
    slices = len(line.edges_ns) - 1
    for i in range(slices):
        paid = sum(times[i] for times in line.accounts.values())
        assert paid == 2 * (line.edges_ns[i + 1] - line.edges_ns[i]), "two devices, paid all the time"
    first, second = line.tracks
    bars = [(bar.account, bar.t0_ns / S, bar.t1_ns / S) for bar in first.bars]
    assert ("stability.import", 0, 2) in bars
    assert ("useful.model_math", 2, 4) in bars
    assert ("stability.lost_work", 4, 8) in bars
    assert ("stability.detect", 8, 10) in bars
    assert [bar.t0_ns / S for bar in second.bars if bar.account == "useful.model_math"] == [11]
