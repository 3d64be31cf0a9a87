"""Trackers follow the journal: one run over restarts, no step twice, and training never waits for them."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "ledger"))

from growing_run import GrowingRun, committed, event, step

from argosy.cli.main import main
from argosy.errors import UsageError
from argosy.integrations import trackers
from argosy.integrations.mirror import Ended, Sent, figures, mirror
from argosy.launch.tracked import TrackedLine

NAMES = list(trackers.PACKAGES)


class Notebook:
    """A tracker that remembers."""

    def __init__(self):
        self.lines, self.closed = [], False

    def log(self, step, figures):
        self.lines.append((step, figures))

    def close(self):
        self.closed = True


def two_attempts(folder):
    """Six steps, a restart from the fourth, and on to the eighth; the generator stops between the attempts."""
    run = GrowingRun(folder, world=1)
    run.begin(0)
    for number in range(6):
        run.all(step(number, number, number + 1, loss=5.0 - number, forward=0.5))
        if number == 3:
            run.write(0, committed(4, 4), event("eval", 4, s=4, loss=1.0, bpb=0.5))
    run.end(7, exit=70, signal=9)
    yield run
    run.begin(10)
    run.write(0, event("restore", 10, id="step-4", to=4, tier="storage", why="resume"))
    run.write(0, event("eval", 10, s=4, loss=1.0, bpb=0.5))  # once more
    for number in range(4, 8):
        run.all(step(number, 7 + number, 8 + number, loss=5.0 - number, forward=0.5))
    run.write(0, committed(8, 15.5), event("eval", 15.6, s=8, loss=0.5))
    run.end(17, exit=0)
    yield run


def steps_in(lines, name="train/loss"):
    return [updates for updates, known in lines if name in known]


def test_a_restart_repeats_nothing(tmp_path):
    book = Notebook()
    for attempt, run in enumerate(two_attempts(tmp_path / "run"), start=1):
        file = run.path / "trackers" / "notebook.json"
        mirror(run.run, attempt, book, Sent(file), Ended(run.run, attempt))
    assert book.closed
    assert steps_in(book.lines) == list(range(1, 9))
    assert steps_in(book.lines, "eval/loss") == [4, 8]
    assert [updates for updates, _ in book.lines] == sorted(updates for updates, _ in book.lines)
    last = book.lines[-1][1]
    shares = {name: value for name, value in last.items() if name.endswith("_share")}
    assert sum(shares.values()) == pytest.approx(1)
    assert last["ledger/paid_device_s"] == 14
    assert last["ledger/money"] == pytest.approx(0.014)


def test_a_mirror_that_died_continues_where_it_was(tmp_path):
    run = next(two_attempts(tmp_path / "run"))
    sent = Sent(run.path / "trackers" / "notebook.json")
    sent.steps["step"] = 3
    sent.save()
    book = Notebook()
    mirror(run.run, 1, book, Sent(run.path / "trackers" / "notebook.json"), Ended(run.run, 1))
    assert steps_in(book.lines) == [4, 5, 6]


def test_what_is_not_finite_is_left_out():
    nan = step(0, 0, 1, loss=float("nan"))
    assert figures(nan)[2].keys() == {"train/grad_norm", "train/learning_rate", "train/tokens_per_s"}
    assert figures({"k": "coll"}) is None


def test_a_missing_package_is_one_line_before_anything_is_made(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(trackers.PACKAGES, "wandb", "no_such_package")
    recipe = Path(__file__).parents[2] / "recipes" / "tiny.toml"
    with pytest.raises(SystemExit) as end:
        main(["train", str(recipe), "--run-dir", str(tmp_path / "run"), "--track", "wandb"])
    assert end.value.code == 64
    err = capsys.readouterr().err
    assert "no_such_package" in err
    assert "pip install 'argosy[wandb]'" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="take one of tensorboard, wandb, mlflow"):
        trackers.check(["excel"])


def test_a_tracker_that_hangs_is_left_behind(tmp_path, monkeypatch, capsys):
    """The mirror is a real process that is stopped; the line goes on without it."""
    run = next(two_attempts(tmp_path / "run"))
    monkeypatch.setattr("argosy.launch.tracked.GRACE_S", 0.5)
    with TrackedLine(sys.stdout, ["tensorboard"]) as line:
        line.follow(run.path, 1)
        (process,) = line._mirrors.values()
        os.kill(process.pid, signal.SIGSTOP)
        begin = time.monotonic()
    assert time.monotonic() - begin < 10
    assert process.returncode == -signal.SIGKILL
    assert "was left behind" in capsys.readouterr().out


def test_a_tracker_that_fails_is_said(tmp_path, capsys, monkeypatch):
    run = next(two_attempts(tmp_path / "run"))
    with TrackedLine(sys.stdout, ["excel"]) as line:
        line.follow(run.path, 1)
    assert "tracker excel is incomplete" in capsys.readouterr().out
    assert "unknown tracker excel" in (run.path / "trackers" / "excel.log").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_real_tracker_has_every_step_once(name, tmp_path):
    if find_spec(trackers.PACKAGES[name]) is None:
        pytest.skip(f"{name} is not installed")
    for attempt, run in enumerate(two_attempts(tmp_path / "run"), start=1):
        command = [sys.executable, "-m", "argosy.integrations.mirror", str(run.path), str(attempt), name]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, env=os.environ | {"WANDB_MODE": "offline"}
        )
        assert done.returncode == 0, done.stderr
    folder = run.path / "trackers" / name
    assert READ[name](folder, run.run.info.id) == {updates: 6.0 - updates for updates in range(1, 9)}


def from_tensorboard(folder, run_id):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0}).Reload()
    from tensorboard.util import tensor_util

    found = [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in events.Tensors("train/loss")]
    return once(found)


def from_mlflow(folder, run_id):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "argosy"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.tags["argosy.run"] == run_id
    assert run.data.params["batch.tokens"] == "512"
    return once([(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "train/loss")])


def from_wandb(folder, run_id):
    from wandb.proto import wandb_internal_pb2

    found = []
    files = sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"))
    assert {file.stem for file in files} == {f"run-{run_id}"}, "both attempts have one id"
    for file in files:
        for data in leveldb_log(file.read_bytes(), first=7):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                row = {
                    item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
                }
                if "train/loss" in row:
                    found.append((row["_step"], row["train/loss"]))
    return once(found)


def leveldb_log(content, first, block=32_768, head=7):
    """The records of a log in LevelDB's format, whose first one begins at byte `first`."""
    at, parts = first, b""
    while at + head <= len(content):
        if block - at % block < head:  # no header fits into the rest of a block
            at += block - at % block
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts += content[at + head : at + head + size]
        at += head + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def once(found):
    assert len(found) == len({updates for updates, _ in found}), "a step is there twice"
    return dict(sorted(found))


READ = {"tensorboard": from_tensorboard, "mlflow": from_mlflow, "wandb": from_wandb}
