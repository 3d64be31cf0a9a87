"""`argosy train` and `argosy stop` from the door: codes, lines and JSON."""

import json
import sys
from pathlib import Path

import pytest

from argosy.cli.main import main
from argosy.errors import Exit
from argosy.launch.live import LiveLine
from argosy.launch.local import train

STAND_IN = Path(__file__).with_name("stand_in.py")


@pytest.fixture
def command(capsys):
    """Run the door; (exit code, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        return (ended.value.code or 0, *capsys.readouterr())  # type: ignore[return-value]

    return run


@pytest.fixture
def finished(recipe_file, tmp_path) -> Path:
    """A run of one rank that has ended well."""
    worker = (sys.executable, "-IS", str(STAND_IN), "done")
    return train(recipe_file, (), 1, tmp_path / "run", live=LiveLine(None), worker_command=worker).run


def test_a_finished_run_as_text_and_as_json(command, recipe_file, finished):
    code, out, _ = command("train", recipe_file, "--run-dir", finished)
    assert code == Exit.DONE
    assert out.startswith(f"{finished} is finished: horizon\n")
    assert "--new" in out
    code, out, err = command("train", recipe_file, "--run-dir", finished, "--json")
    expected = {"schema": "argosy.train/1", "run": str(finished), "attempt": None, "exit": 0, "stop_reason": "horizon"}
    assert json.loads(out) == expected
    assert "is finished" in err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("train", "nowhere.toml"), Exit.INPUT, "nowhere.toml: no such recipe"),
        (("train", "{recipe}", "--nproc", "3"), Exit.USAGE, "not divisible by 3 data-parallel ranks → use"),
        (("train", "{recipe}", "--set", "optimizer.lr=1"), Exit.USAGE, "did you mean optimizer.learning_rate?"),
        (("train", "{recipe}", "--run-dir", "/proc/no"), Exit.INPUT, "give a --run-dir that you may write"),
        (("train", "{recipe}", "--set", "data.source='/nowhere'"), Exit.INPUT, "/nowhere"),
        (("stop", "{finished}"), Exit.USAGE, "there is nothing to stop"),
        (("stop", "/proc"), Exit.INPUT, "is no run folder"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_code(
    command, recipe_file, finished, tmp_path, monkeypatch, words, code, says
):
    monkeypatch.chdir(tmp_path)
    got, out, err = command(*(word.format(recipe=recipe_file, finished=finished) for word in words))
    assert (got, err.count("\n")) == (code, 1)
    assert says in err
    assert "Traceback" not in out + err
