"""`argosy recipe` as a person or a script uses it."""

import json
from pathlib import Path

import pytest

from argosy.cli.main import main
from argosy.errors import Exit
from argosy.recipe.load import load_recipe, parse_recipe

TEXT = """\
[model]
preset = "argosy-0.5m"

[objective]
tokens = 1_000_000
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.toml"
    path.write_text(TEXT)
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


def test_check_says_what_it_amounts_to(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "recipe", "check", file, "--nproc", 2)
    assert code == Exit.DONE
    assert "836,704 parameters" in out
    assert "123 steps of 8,192 tokens" in out
    assert "on 2 ranks: dp 2; 16 sequences per rank" in out


def test_check_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "recipe", "check", file, "--json", "--set", "batch.tokens=4096", "--nproc", 2)
    result = json.loads(out)
    assert code == Exit.DONE
    assert (result["schema"], result["steps"], result["batch_sequences"]) == (1, 245, 16)
    assert result["layout"]["dp"] == 2
    assert len(result["learning_hash"]) == 64


def test_check_does_not_guess_what_only_the_tokenizer_knows(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "tokenizer.kind=file", "--set", "tokenizer.path=t.json"]
    _, out, _ = run(capsys, "recipe", "check", file, "--json", *sets)
    assert json.loads(out)["parameters"] is None
    _, out, _ = run(capsys, "recipe", "check", file, *sets)
    assert "parameters unknown" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "model.layer=3"], "did you mean model.layers?"),
        (["--nproc", "3"], "not divisible by 3 data-parallel ranks → use 30 or 33 sequences"),
        (["--set", "layout.dp=2", "--nproc", "3"], "does not make a world size of 3"),
    ],
)
def test_check_refuses_with_64(file: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "recipe", "check", file, *words)
    assert (code, out) == (Exit.USAGE, "")
    assert says in err


def test_show_resolved_is_a_recipe_that_means_the_same(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "recipe", "show", file, "--resolved", "--set", "model.layers=7")
    assert parse_recipe(out) == load_recipe(file, ["model.layers=7"])
    assert "hidden_size = 96" in out  # from the preset


def test_show_prints_what_was_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "recipe", "show", file, "--set", "run.name=x")
    assert out == '[model]\npreset = "argosy-0.5m"\n\n[objective]\ntokens = 1000000\n\n[run]\nname = "x"\n'


@pytest.mark.parametrize("flag", [[], ["--resolved"]])
def test_show_as_json(file: Path, flag: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "recipe", "show", file, "--json", *flag)
    tree = json.loads(out)["recipe"]
    assert tree["objective"]["tokens"] == 1_000_000
    assert ("optimizer" in tree) == bool(flag)


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "recipe", "explain", "layout.fsdp")
    assert code == Exit.DONE
    assert 'default  "auto"' in out
    _, out, _ = run(capsys, "recipe", "explain", "budget", "--json")
    fields = {field["key"]: field for field in json.loads(out)["fields"]}
    assert fields["budget.money"]["unit"] == "currency"
    code, _, err = run(capsys, "recipe", "explain", "optimizer.lr")
    assert (code, "did you mean optimizer.learning_rate?" in err) == (Exit.USAGE, True)
