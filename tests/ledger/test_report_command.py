"""`argosy report`: one run or the runs of a folder, as text and as JSON, and what it says to bad input."""

import json

import pytest
from growing_run import GrowingRun, committed, step

from argosy.cli.main import main


def argosy(capsys, *words):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as end:
        main(list(words))
    said = capsys.readouterr()
    return end.value.code or 0, said.out, said.err


@pytest.fixture
def finished(tmp_path):
    run = GrowingRun(tmp_path / "runs" / "one")
    run.begin(0)
    run.all(step(0, 0, 4, loss=3.0, forward=3.0, data_wait=1.0))
    run.write(0, committed(1, 4))
    run.end(4, exit=0, reason="target reached")
    return run


def test_one_run_as_text_and_as_json(finished, capsys):
    code, text, err = argosy(capsys, "report", str(finished.path))
    assert (code, err) == (0, "")
    assert "25.0% of what was paid leaked into compute.data_wait" in text
    assert "\x1b" not in text
    code, text, err = argosy(capsys, "report", str(finished.path), "--json")
    content = json.loads(text)
    assert (code, err) == (0, "")
    assert (content["schema"], content["paid_ns"], content["steps"], content["tokens"]) == (
        "argosy.report/1",
        8 * 10**9,
        1,
        512,
    )
    assert content["accounts"]["compute.data_wait"] == {
        "ns": 2 * 10**9,
        "share": 0.25,
        "money": "0.002",
        "imputed_ns": 0,
        "estimated_ns": 0,
    }


def test_a_report_changes_nothing(finished, capsys):
    before = {file: file.read_bytes() for file in finished.path.rglob("*") if file.is_file()}
    argosy(capsys, "report", str(finished.path))
    assert {file: file.read_bytes() for file in finished.path.rglob("*") if file.is_file()} == before


def test_the_runs_of_a_folder_with_one_that_cannot_be_read(finished, capsys):
    GrowingRun(finished.path.parent / "two")  # never started
    (finished.path.parent / "no run").mkdir()
    code, text, _ = argosy(capsys, "report", str(finished.path.parent), "--json")
    content = json.loads(text)
    assert (code, content["schema"]) == (0, "argosy.runs/1")
    one, two = content["runs"]
    assert (one["state"], one["steps"], one["tokens"], one["loss"]) == ("finished: target reached", 1, 512, 3.0)
    assert (one["paid_ns"], one["useful_share"], one["money"], one["currency"]) == (8 * 10**9, 0.75, "0.008", "USD")
    assert (two["paid_ns"], two["money"]) == (None, None)
    assert "no attempt has begun" in two["error"]
    code, text, _ = argosy(capsys, "report", str(finished.path.parent))
    assert code == 0
    assert "75.0%" in text
    assert "no attempt has begun" in text


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.mkdir(), "neither a run nor a folder of runs"),
        (lambda path: path.write_text("x"), "no such folder"),
        (lambda path: GrowingRun(path), "no attempt has begun"),
        (lambda path: (path.mkdir(), (path / "run.json").write_text("{")), "damaged"),
        (lambda path: GrowingRun(path).price("1", currency="EUR"), "no attempt has begun"),
    ],
)
def test_bad_input_is_one_line_and_exit_66(tmp_path, capsys, make, says):
    make(tmp_path / "x")
    code, out, err = argosy(capsys, "report", str(tmp_path / "x"))
    assert (code, out, err.count("\n")) == (66, "", 1)
    assert says in err
    assert "x" in err


def test_two_currencies_are_refused(finished, capsys):
    finished.price("1", from_s=1, currency="EUR")
    code, out, err = argosy(capsys, "report", str(finished.path))
    assert (code, out, err.count("\n")) == (66, "", 1)
    assert "USD" in err
    assert "EUR" in err


def test_foreign_files_in_a_run_are_said_and_do_no_harm(finished, capsys):
    folder = finished.run.attempt_folder(1)
    (folder / "rank-7.jsonl").write_bytes(b"\xff\xfe nothing of ours\n[1, 2]\n")
    (folder / "notes.txt").write_text("hello")
    (finished.path / "events" / "attempt-old").mkdir()
    code, text, err = argosy(capsys, "report", str(finished.path))
    assert (code, err) == (0, "")
    assert "rank-7.jsonl: cannot be read" in text
