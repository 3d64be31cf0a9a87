"""What else a report can be: a comparison, a window of time, a trace, a text file for Prometheus."""

import json
from fractions import Fraction

import pytest
from growing_run import WALL_S, GrowingRun, committed, step
from pages import eventful_run
from test_report_command import argosy
from test_waits import MS, two_ranks

from argosy.errors import InputError, UsageError
from argosy.journal.collectives import calls
from argosy.ledger.attempts import sources
from argosy.ledger.clocks import RunClock
from argosy.ledger.diff import compare
from argosy.ledger.period import period
from argosy.ledger.prometheus import prometheus_text
from argosy.ledger.report import build_report
from argosy.ledger.trace import chrome_trace

S = 10**9


def short_run(folder, wait_s: float, steps: int = 8) -> GrowingRun:
    run = GrowingRun(folder, world=1)
    run.begin(0)
    for number in range(steps):
        run.all(step(number, number, number + 1, forward=1 - wait_s, data_wait=wait_s))
    run.write(0, committed(steps, steps))
    run.end(steps, exit=0)
    return run


def test_differences_of_accounts_sum_to_that_of_the_whole(tmp_path):
    a, b = (
        build_report(short_run(tmp_path / name, wait, steps).path)
        for name, wait, steps in (("a", 0.2, 8), ("b", 0.5, 11))
    )
    found = compare(a, b)
    assert sum((row.more for row in found.rows), Fraction(0)) == found.whole.more == 0
    by_name = {row.account: row.more for row in found.rows}
    per_second = Fraction(10**6, 512)
    assert by_name["compute.data_wait"] == Fraction(3, 10) * per_second
    assert by_name["useful.model_math"] == -Fraction(3, 10) * per_second


def test_a_run_without_kept_tokens_cannot_be_compared(tmp_path):
    a = build_report(short_run(tmp_path / "a", 0.2).path)
    lost = GrowingRun(tmp_path / "b", world=1)
    lost.begin(0)
    lost.all(step(0, 0, 1, forward=1))
    lost.end(1, exit=70, signal=9)
    with pytest.raises(InputError, match="no kept token"):
        compare(a, build_report(lost.path))


def test_windows_sum_to_the_whole_and_an_empty_one_is_said(tmp_path, capsys):
    run = eventful_run(tmp_path / "run")
    whole = build_report(run.path)
    cut = (WALL_S + 15) * S + 123
    parts = [build_report(run.path, window_ns=window) for window in ((0, cut), (cut, 2**62))]
    for name, line in whole.accounts.items():
        assert sum(part.accounts[name].ns for part in parts if name in part.accounts) == line.ns
    code, _, err = argosy(capsys, "report", str(run.path), "--since", "2001-01-01", "--until", "2001-01-02")
    assert code == 66
    assert "nothing was paid in that time" in err


@pytest.mark.parametrize(("since", "until"), [("yesterday", None), (None, "25:00"), ("2026-01-02", "2026-01-01")])
def test_moments_that_are_none_are_refused(since, until):
    with pytest.raises(UsageError):
        period(since, until)


def test_moments_are_utc_unless_they_say_otherwise():
    assert period("1970-01-01T00:00:01", None) == (S, 2**62)
    assert period(None, "1970-01-01T01:00:00.5+01:00") == (0, S // 2)


def test_a_trace_has_every_sampled_phase_and_collective_and_slices_of_a_track_do_not_overlap():
    journal = two_ranks([0, 30, 0, 20, 0], sampled=True).journal()
    ranks, _ = sources(journal, RunClock(journal), None)
    trace = json.loads(json.dumps(chrome_trace(ranks)))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len([s for s in slices if s["name"] == "all_reduce"]) == sum(len(list(calls(r.file.events))) for r in ranks)
    assert sum(s["dur"] for s in slices if s["name"] == "forward") * 1000 == 2 * 5 * 40 * MS + 50 * MS
    tracks: dict[tuple[int, int], float] = {}
    for one in sorted(slices, key=lambda s: s["ts"]):
        place = one["pid"], one["tid"]
        assert one["ts"] >= tracks.get(place, 0) - 1e-6
        tracks[place] = one["ts"] + one["dur"]


def test_prometheus_counters_sum_to_what_was_paid(tmp_path, capsys):
    run = eventful_run(tmp_path / "run")
    report = build_report(run.path)
    text = prometheus_text(report)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    seconds = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("ledger_gpu_seconds_total")]
    assert round(sum(seconds) * S) == report.paid_ns - report.at_risk_ns
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines), "each series once"
    assert not any("step=" in line or "rank=" in line for line in lines)
    file = tmp_path / "m.prom"
    assert argosy(capsys, "report", str(run.path), "--prometheus", str(file))[0] == 0
    assert file.read_text() == text
    code, _, err = argosy(capsys, "report", str(run.path), "--prometheus", str(tmp_path / "no" / "m.prom"))
    assert code == 66
    assert "cannot be written" in err


def test_options_of_one_run_are_refused_for_a_folder_of_runs(tmp_path, capsys):
    short_run(tmp_path / "runs" / "a", 0.2)
    code, _, err = argosy(capsys, "report", str(tmp_path / "runs"), "--since", "2026-01-01")
    assert code == 64
    assert "folder of runs" in err
