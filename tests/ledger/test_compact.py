"""A report from `compact/` says what the journal says, and the journal is read when they no longer fit."""

from dataclasses import asdict

import pytest
from growing_run import committed, step
from pages import eventful_run
from test_report_command import argosy

from argosy.errors import UsageError
from argosy.journal.liveness import is_held
from argosy.ledger import compact as module
from argosy.ledger.compact import Compact
from argosy.ledger.report import build_report, compact_run

pytest.importorskip("duckdb")
SAME = ("paid_ns", "money", "accounts", "layers", "crosstab", "at_risk_ns", "work", "timeline", "causes", "attempts")


def test_sums_money_time_line_and_causes_are_the_same(tmp_path):
    run = eventful_run(tmp_path / "run")
    before = asdict(build_report(run.path))
    compact_run(run.path)
    assert Compact.find(run.path) is not None
    after = asdict(build_report(run.path))
    for name in SAME:
        assert after[name] == before[name], name
    assert after["heat_map"]["rows"] == ["rank 0", "rank 1"]
    for ours, theirs in zip(after["heat_map"]["values_s"], before["heat_map"]["values_s"], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)


def test_a_journal_that_grew_is_read_itself(tmp_path):
    run = eventful_run(tmp_path / "run")
    compact_run(run.path)
    run.begin(200)
    run.all(step(30, 201, 202, forward=1.0))
    run.write(0, committed(31, 202))
    run.end(203, exit=0)
    assert Compact.find(run.path) is None
    assert build_report(run.path).work.kept_steps == 31


def test_compaction_changes_nothing_outside_of_its_folder_and_needs_a_run_that_is_over(tmp_path, capsys, monkeypatch):
    run = eventful_run(tmp_path / "run")
    before = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    code, said, _ = argosy(capsys, "report", str(run.path), "--compact")
    assert code == 0
    assert "bytes per step and rank" in said
    after = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    assert {file for file in after if "compact" not in file.parts} == set(before)
    assert all(after[file] == content for file, content in before.items())
    assert not is_held(run.path / "lock")
    monkeypatch.setattr(module, "is_held", lambda lock: True)
    with pytest.raises(UsageError, match="live"):
        compact_run(run.path)
    assert Compact.find(run.path) is None
