"""The door: fast help, one-line errors, exit codes."""

import subprocess
import sys

import pytest

from argosy import __version__
from argosy.cli.main import COMMANDS, main
from argosy.errors import Exit


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], {"torch", "numpy", "pydantic", "tokenizers", "psutil"}),
        (["recipe", "check", "--help"], {"torch", "numpy", "tokenizers", "psutil"}),  # typer takes pydantic if it can
    ],
)
def test_help_imports_nothing_heavy(words: list[str], heavy: set[str]) -> None:
    code = (
        "import sys\nfrom argosy.cli.main import main\n"
        f"try: main({words})\nexcept SystemExit: pass\n"
        f"found = {heavy} & set(sys.modules)\nassert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage: argosy" in done.stdout


def test_help_names_every_command_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == Exit.DONE
    listed = {
        line.split()[1] for line in out.split("Commands")[1].splitlines() if line.startswith("│ ") and line[2] != " "
    }
    assert listed == set(COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "argosy: No such command 'nonsense' → see `argosy --help`"),
        (["recipe", "check"], "argosy recipe check: Missing argument 'RECIPE' → see `argosy recipe check --help`"),
        (["recipe", "check", "x", "--nproc", "two"], "Invalid value for '--nproc'"),
        (["--nonsense"], "No such option: --nonsense"),
        (["recipe"], "argosy recipe: names no command"),
    ],
)
def test_wrong_usage_is_one_line_and_64(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *words)
    assert code == Exit.USAGE
    assert says in err
    assert len(err.splitlines()) == 1


def test_missing_input_is_66_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "recipe", "check", "/nowhere/r.toml")
    assert (code, out) == (Exit.INPUT, "")
    assert err == "argosy: /nowhere/r.toml: no such recipe → give the path of a TOML file\n"


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_debug_shows_the_traceback_from_any_place(place: int, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["recipe", "check", "/nowhere/r.toml"]
    words.insert(place, "--debug")
    code, _, err = run(capsys, *words)
    assert code == Exit.INPUT
    assert "Traceback" in err
    assert err.endswith("argosy: /nowhere/r.toml: no such recipe → give the path of a TOML file\n")


def test_a_reader_that_has_enough_is_no_error() -> None:
    command = f"{sys.executable} -c 'from argosy.cli.main import main; main()' recipe explain"
    script = f"{command} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["run.name: name shown in reports", "0"]
    assert done.stderr == ""
