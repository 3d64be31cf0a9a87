"""Training and reporting with everything taken away that Linux has and macOS has not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STRIPPED = """
import ctypes, os, pathlib, time
for module, names in (
    (os, ("pidfd_open", "waitid", "memfd_create", "posix_fallocate", "posix_fadvise", "sched_getaffinity", "pipe2")),
    (time, ("CLOCK_BOOTTIME",)),
):
    for name in names:
        delattr(module, name)

whole = pathlib.Path.read_text

def read_text(path, *arguments, **named):
    if path.is_relative_to("/proc") or path.is_relative_to("/sys"):
        raise FileNotFoundError(2, "No such file or directory", str(path))
    return whole(path, *arguments, **named)

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "prctl":
            raise AttributeError(name)
        return super().__getattr__(name)

pathlib.Path.read_text = read_text
ctypes.CDLL = Library
"""


@pytest.mark.dist
def test_a_run_trains_and_reports_without_what_only_linux_has(recipe_file: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(STRIPPED)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}

    def argosy(*words: str) -> subprocess.CompletedProcess[str]:
        door = [sys.executable, "-c", "from argosy.cli.main import main; main()"]
        return subprocess.run([*door, *words], capture_output=True, text=True, timeout=200, env=environment)

    shape = ("model.layers=2", "model.hidden_size=32", "model.heads=2", "model.ffn_size=64", "data.sequence_length=32")
    shape += ("batch.tokens=256", "objective.tokens=5120", "eval.final_tokens=512", "journal.sample_every=5")
    sets = [word for one in shape for word in ("--set", one)]
    run = tmp_path / "run"
    done = argosy("train", str(recipe_file), *sets, "--nproc", "2", "--run-dir", str(run))
    assert done.returncode == 0, done.stdout + done.stderr
    report = argosy("report", str(run), "--json")
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)
    plan = argosy("recipe", "check", str(recipe_file))
    assert plan.returncode == 0, plan.stderr
