"""The launcher with the ranks that really train: stopped cleanly by a person, continued, finished, and paid for."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from argosy.errors import Exit
from argosy.journal.reader import Journal, read_run
from argosy.launch.stop import stop
from argosy.ledger.books import keep_books

pytestmark = pytest.mark.dist

SHAPE = (
    "model.layers=2",
    "model.hidden_size=32",
    "model.heads=2",
    "model.ffn_size=64",
    "data.sequence_length=32",
    "batch.tokens=256",
    "objective.tokens=10240",  # 40 steps
    "data.held_out_share=0.002",  # the last evaluation reads all of it
)


def start(recipe: Path, folder: Path) -> subprocess.Popen:
    sets = [word for field in SHAPE for word in ("--set", field)]
    door = [sys.executable, "-c", "from argosy.cli.main import main; main()"]
    command = [*door, "train", str(recipe), "--nproc", "2", "--run-dir", str(folder), "--json", *sets]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_step(agent: subprocess.Popen, journal: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while not (journal.exists() and f'"s":{step},' in journal.read_text()):
        assert agent.poll() is None, agent.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def steps(journal: Journal, attempt: int) -> list[int]:
    (lead,) = [file for file in journal.ranks if (file.attempt, file.rank) == (attempt, 0)]
    return lead.steps.step.tolist()


def test_stopped_by_a_person_and_continued(recipe_file, tmp_path):
    folder = tmp_path / "run"
    agent = start(recipe_file, folder)
    wait_for_step(agent, folder / "events" / "attempt-1" / "rank-0.jsonl", 5)
    stopped = stop(folder, timeout_s=120)
    out, err = agent.communicate(timeout=60)
    assert agent.returncode == stopped.exit == Exit.START_AGAIN, err
    assert json.loads(out)["stop_reason"] == stopped.reason == "asked to stop: argosy stop"

    before = steps(read_run(folder), 1)
    assert stopped.checkpoint == f"step-{len(before)}", "the step it was in is not the one it saved"

    agent = start(recipe_file, folder)
    out, err = agent.communicate(timeout=120)
    assert agent.returncode == Exit.DONE, err
    journal = read_run(folder)
    assert before + steps(journal, 2) == list(range(40)), "a step was lost or done twice"

    books = keep_books(journal)
    paid = [row["t"] if row["ph"] == "close" else -row["t"] for row in journal.paid]
    assert sum(books.accounts.values()) == books.paid_ns == sum(paid)
    assert not [name for name in books.accounts if name.startswith("decision.")]
