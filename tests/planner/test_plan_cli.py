"""`argosy plan` as a user meets it."""

import csv
import json
from pathlib import Path

import pytest
from shared_data import ROW

from argosy.cli.main import main
from argosy.errors import Exit

ARGS = ["--model", "llama3-8b", "--cluster", "16xH100"]


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_search_is_what_plan_means(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = _run(
        capsys, "plan", *ARGS, "--tokens", "100B", "--top", "2", "--json", "--html", str(tmp_path / "p.html")
    )
    assert code == 0
    content = json.loads(out)
    assert content["schema"] == 1
    assert len(content["plans"]) == 2
    first = content["plans"][0]["predicted"]
    assert first["step_time_s"]["low"] < first["step_time_s"]["value"] < first["step_time_s"]["high"]
    assert content["plans"][0]["binding"]
    assert content["run"]["days"] > 0
    assert float(content["run"]["cost"]) > 0
    assert "<html" in (tmp_path / "p.html").read_text().lower()
    assert _run(capsys, "plan", "search", *ARGS, "--tokens", "100B", "--top", "2", "--json")[1] == out


def test_explain_has_terms_that_add_up_and_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _run(capsys, "plan", "explain", *ARGS, "--layout", "tp=2,pp=4", "--json")
    content = json.loads(out)
    assert sum(content["time_s"].values()) == pytest.approx(content["predicted"]["step_time_s"]["value"])
    assert len(content["schedule"]["ranks"]) == len(content["ranks"]) == 4
    assert content["links"] == {"pp": "scale-up link inside a domain, network between", "fsdp": "scale-up link",
                                "tp": "scale-up link"}  # fmt: skip


def test_explain_counts_a_recipes_own_layout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("[model]\npreset = 'llama3-8b'\n[data]\nsequence_length = 8192\n[objective]\ntokens = 1e9\n"
                    "[batch]\ntokens = 524288\n[layout]\ntp = 2\nmicro_batch_sequences = 1\n")  # fmt: skip
    sets = ("--set", "layout.pp=2", "--set", "layout.schedule=zbv")
    _, out, _ = _run(capsys, "plan", "explain", str(path), *sets, "--world-size", "16", "--json")
    content = json.loads(out)
    first, last = content["ranks"]
    assert [rank["rank"] for rank in (first, last)] == [0, 8]
    assert first["stages"] == [0, 3], "a V: the first pipeline rank has both ends"
    assert first["parameter_bytes"] == 4 * first["parameters"] > last["parameter_bytes"]
    assert first["optimizer_bytes"] == 2 * first["gradient_bytes"]
    assert first["activation_bytes"] > 0
    assert first["flops"]["backward"] == 2 * first["flops"]["forward"]
    assert {c["axis"] for c in first["collectives"]} == {"pp", "fsdp", "tp"}
    assert all(c["count"] * c["bytes"] > 0 for c in first["collectives"])
    assert {span["kind"] for span in content["schedule"]["ranks"][1]} == {"F", "I", "W"}
    assert sum(content["balanced_stage_layers"]) == 32

    _, out, _ = _run(capsys, "plan", "explain", str(path), *sets, "--world-size", "16", "--rank", "9", "--json")
    assert [rank["coordinates"]["tp"] for rank in json.loads(out)["ranks"]] == [1]
    code, out, _ = _run(capsys, "plan", "explain", str(path), *sets, "--world-size", "16")
    assert code == 0
    assert "I0W0" in out
    assert "reduce_scatter" in out
    code, _, err = _run(capsys, "plan", "explain", str(path), "--world-size", "16", "--rank", "16")
    assert (code, err.count("\n")) == (Exit.USAGE, 1)
    assert "there is no rank 16 of 16" in err


def test_fit_says_no_with_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "plan", "fit", "--model", "llama3-70b", "--cluster", "8xH100", "--json")
    content = json.loads(out)
    assert code == Exit.CHECK_SAYS_NO
    assert content["verdict"] == "does not fit"
    assert content["memory"][0]["name"] == "optimizer"
    assert "use 16 accelerators" in content["do"]
    assert _run(capsys, "plan", "fit", *ARGS)[0] == 0


def test_compare_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "plan", "compare", "tp=8", "tp=2,pp=2", *ARGS)
    assert code == 0
    assert "peak memory" in out


def test_validate_answers_row_by_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    rows = [ROW | {"step_time_s": "10"}, ROW | {"gpu": "", "step_time_s": "10"}, ROW | {"pp": "64", "step_time_s": ""}]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    code, out, _ = _run(capsys, "plan", "validate", str(path), "--json")
    content = json.loads(out)
    assert code == 0
    assert [row["line"] for row in content["rows"]] == [2, 3, 4]
    assert content["rows"][0]["step_time_s"] > 0
    assert content["rows"][1] | {"step_time_s": None, "missing": ["gpu"]} == content["rows"][1]
    assert content["rows"][2]["fits"] is False
    assert content["constants"]["count"] > 20


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("plan", "--model", "llama3-8b", "--cluster", "64xH1O0"),
            Exit.USAGE,
            "unknown accelerator 'H1O0' → did you mean",
        ),
        (("plan", "--cluster", "8xH100"), Exit.USAGE, "give a recipe or --model"),
        (("plan", "--model", "llama9", "--cluster", "8xH100"), Exit.USAGE, "unknown preset 'llama9' → use llama3"),
        (("plan", "--model", "argosy-3m", "--cluster", "8xH100"), Exit.USAGE, "no vocabulary of its own"),
        (("plan", "explain", *ARGS, "--layout", "tp=3"), Exit.USAGE, "does not divide 16 accelerators"),
        (("plan", "explain", *ARGS, "--layout", "tq=3"), Exit.USAGE, "'tq=3' is not understood"),
        (("plan", "validate", "absent.csv"), Exit.INPUT, "absent.csv: cannot be read"),
        (("plan", *ARGS, "--tokens", "many"), Exit.USAGE, "'many' is no count → write 15T"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, message: str
) -> None:
    got, out, err = _run(capsys, *words)
    assert (got, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1
