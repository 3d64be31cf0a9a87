import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from argosy.cli import data
from argosy.errors import InputError, UsageError


@pytest.fixture
def argosy():
    app = typer.Typer()
    data.register(app)

    def run(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result

    return run


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"body": f"[text] {n} " * 5}) + "\n" for n in range(50)) + "{bad\n")
    return path


def test_build_and_inspect_agree(argosy, source, tmp_path):
    out = tmp_path / "out"
    built = argosy("data", "build", source, out, "--text-field", "body", "--vocab-size", 280, "--json")
    found = json.loads(built.stdout)
    assert found["source"]["documents"] == 50
    assert found["source"]["rejected"] == 1
    assert found["tokenizer"]["kind"] == "bpe"
    assert "tokenizer: bpe" in built.stderr
    assert json.loads(argosy("data", "inspect", out, "--json").stdout) == found
    text = argosy("data", "inspect", out).stdout
    assert found["digest"] in text
    assert "│ [text]" in text
    assert "rejected.jsonl" in text
    again = argosy(
        "data", "build", source, tmp_path / "again", "--text-field", "body", "--tokenizer", out / "tokenizer.json"
    )
    assert "tokenizer: file" in again.stderr


def test_wrong_words_are_one_line(argosy, source, tmp_path):
    with pytest.raises(UsageError, match="between 0 and 1"):
        argosy("data", "build", source, tmp_path / "out", "--held-out-share", 1)
    with pytest.raises(InputError, match=r"x\.jsonl:6: bad record \(no field 'text'; it has body\)"):
        argosy("data", "build", source, tmp_path / "out", "--most-rejected", 5)
    with pytest.raises(InputError, match="no such tokenizer file"):
        argosy("data", "build", source, tmp_path / "out", "--text-field", "body", "--tokenizer", "missing.json")
    with pytest.raises(InputError, match="no such data folder"):
        argosy("data", "inspect", tmp_path / "out")


def test_help_needs_neither_torch_nor_tokenizers():
    program = "import sys, argosy.cli.data; sys.exit(bool({'torch', 'tokenizers', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
