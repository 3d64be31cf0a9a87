"""What enters a fit is refused or flagged, never averaged in silence."""

from pathlib import Path

import numpy as np
import pytest
from ladders import csv_text, planted

from argosy.errors import InputError, UsageError
from argosy.lab.answer import answer, fit_table
from argosy.lab.entry import enter, roles_of
from argosy.lab.table import read_table

X, Y = ["N", "D"], "loss"


def table_of(tmp_path: Path, text: str):
    path = tmp_path / "results.csv"
    path.write_text(text, encoding="utf-8")
    return read_table(path)


def entered(tmp_path: Path, text: str, **options: bool):
    table = table_of(tmp_path, text)
    return enter(table, roles_of(table, X, Y), **options)


def kinds(entry) -> dict[str, int]:
    return {problem.kind: problem.rows for problem in entry.problems}


def test_a_clean_table_enters_whole(tmp_path: Path) -> None:
    entry = entered(tmp_path, csv_text(planted()))
    assert len(entry.runs) == 45
    assert not entry.problems


def test_one_size_only_is_refused(tmp_path: Path) -> None:
    runs = planted()
    with pytest.raises(InputError, match="one size only"):
        entered(tmp_path, csv_text(runs.take(runs.parameters == runs.parameters[0])))


def test_all_diverged_is_refused_and_some_are_flagged(tmp_path: Path) -> None:
    runs = planted()
    with pytest.raises(InputError, match="all 45 runs diverged"):
        entered(tmp_path, csv_text(runs, diverged=[1] * 45))
    entry = entered(tmp_path, csv_text(runs, diverged=[1, 1] + [0] * 43))
    assert kinds(entry) == {"diverged": 2}
    assert len(entry.runs) == 43


@pytest.mark.parametrize("column", ["tokenizer", "validation_set", "dataset"])
def test_mixtures_are_refused_with_a_way_out(tmp_path: Path, column: str) -> None:
    with pytest.raises(InputError, match=f"--group {column}"):
        entered(tmp_path, csv_text(planted(), **{column: ["a"] * 20 + ["b"] * 25}))


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_flops_off_by_three_are_refused(tmp_path: Path, factor: float) -> None:
    runs = planted()
    wrong = runs.compute_flops.copy()
    wrong[7] *= factor
    with pytest.raises(InputError, match=r"line 9: flops is .* times 6·N·D"):
        entered(tmp_path, csv_text(type(runs)(runs.parameters, runs.tokens, wrong, runs.loss)))


def test_flops_with_the_head_counted_are_flagged(tmp_path: Path) -> None:
    runs = planted()
    entry = entered(tmp_path, csv_text(type(runs)(runs.parameters, runs.tokens, 1.4 * runs.compute_flops, runs.loss)))
    assert kinds(entry) == {"flops": 45}


def test_copies_are_left_out(tmp_path: Path) -> None:
    text = csv_text(planted())
    entry = entered(tmp_path, text + "\n".join(text.splitlines()[1:4]) + "\n")
    assert kinds(entry) == {"duplicate": 3}
    assert len(entry.runs) == 45


def test_checkpoints_of_a_run_are_not_finished_runs(tmp_path: Path) -> None:
    runs = planted()
    names = [f"run{i // 2}" for i in range(45)]  # two rows per name: only the later one is an end
    entry = entered(tmp_path, csv_text(runs, run=names, step=list(range(45))))
    assert kinds(entry)["intermediate"] == 22
    entry = entered(tmp_path, csv_text(runs, schedule_fraction=[0.5] * 5 + [1.0] * 40))
    assert kinds(entry) == {"intermediate": 5}


def test_a_curve_without_run_names_is_refused(tmp_path: Path) -> None:
    lines = ["N,D,loss"] + [f"1e8,{i}e8,{4 - 0.01 * i}" for i in range(1, 30)]
    with pytest.raises(InputError, match="checkpoints of one run"):
        entered(tmp_path, "\n".join(lines))


def test_missing_losses_are_named(tmp_path: Path) -> None:
    lines = csv_text(planted()).splitlines()
    lines[4] = lines[4].rsplit(",", 1)[0] + ",nan"
    lines[6] = lines[6].rsplit(",", 1)[0] + ","
    entry = entered(tmp_path, "\n".join(lines))
    assert kinds(entry) == {"no_loss": 2}
    assert "lines 5, 7" in entry.problems[0].what


def test_a_sweep_is_flagged_and_best_takes_its_best(tmp_path: Path) -> None:
    runs = planted()
    double = runs.take(np.concatenate([np.arange(45), [0]]))
    double.loss[-1] *= 1.05
    assert kinds(entered(tmp_path, csv_text(double))) == {"sweep": 2}
    best = entered(tmp_path, csv_text(double), best=True)
    assert len(best.runs) == 45
    assert best.runs.loss[0] == runs.loss[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "header"),
        ("N,D,loss\n", "no rows"),
        ("N,D,loss\n1,2\n", "2 cells under 3"),
        ("N,N,loss\n1,2,3\n", "every column once"),
        ("N,D,loss\n1e8,2e9,abc\n", "'abc' is no number"),
    ],
)
def test_damaged_files_say_where(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        entered(tmp_path, text)


def test_filters_and_groups(tmp_path: Path) -> None:
    table = table_of(tmp_path, csv_text(planted(), data=["c4"] * 20 + ["pile"] * 25))
    assert len(table.filter(["data=c4|other"])) == 20
    assert len(table.filter(["N<=1e8,data!=pile"])) == 15
    assert [(key, len(part)) for key, part in table.groups(["data"])] == [({"data": "c4"}, 20), ({"data": "pile"}, 25)]
    with pytest.raises(UsageError, match="no column"):
        table.filter(["nope=1"])


def test_answers_carry_the_promised_keys(tmp_path: Path) -> None:
    table = table_of(tmp_path, csv_text(planted()))
    fits = fit_table(table, X, Y, predict=["N=6e9,D=1.2e11", "C=2e22"])
    said = answer(fits, table, resamples=100)
    for key in ("prediction", "interval_50", "interval_90", "form", "rests_on", "next_run"):
        assert key in said
        assert all(key in one for one in said["predictions"])
    low, high = said["interval_90"]
    inner_low, inner_high = said["interval_50"]
    assert low < inner_low < said["prediction"] < inner_high < high
    assert said["next_run"]["interval_shrinks_to"] < 1
    with pytest.raises(UsageError, match="neither an axis"):
        fit_table(table, X, Y, predict=["N=1e9,D=2e10,colour=red"])
