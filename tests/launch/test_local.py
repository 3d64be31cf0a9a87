"""The launcher with workers that are real processes but do not train (`stand_in.py`)."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from argosy.errors import Exit, UsageError
from argosy.journal.reader import read_file, read_rows
from argosy.launch.live import LiveLine
from argosy.launch.local import Outcome, log_file, next_free, train
from argosy.launch.paid_before import paid_before_ns
from argosy.launch.stop import stop
from argosy.registry.run_folder import Locked, RunFolder
from argosy.resilience.incident import read_incidents

STAND_IN = Path(__file__).with_name("stand_in.py")


def launch(recipe: Path, folder: Path, *mode: str, sets: tuple[str, ...] = (), new: bool = False) -> Outcome:
    worker = (sys.executable, "-IS", str(STAND_IN), *mode)
    return train(recipe, sets, 2, folder, new=new, live=LiveLine(None), worker_command=worker)


def attempt_end(run: Path, attempt: int = 1) -> dict:
    (file,) = (run / "events" / f"attempt-{attempt}").glob("agent-*.jsonl")
    content = read_file(file)
    assert content is not None
    start, end = content.of_kind("attempt")
    assert start["t"] <= end["t"]
    return end


def test_a_run_that_ends_well(recipe_file, tmp_path):
    outcome = launch(recipe_file, tmp_path / "run", "done")
    assert (outcome.exit, outcome.reason, outcome.attempt) == (Exit.DONE, "horizon", 1)
    assert attempt_end(tmp_path / "run").items() >= {"exit": 0, "reason": "horizon"}.items()
    plan = json.loads((tmp_path / "run" / "plan-1.json").read_text())
    assert plan["layout"]["dp"] == 2
    paid = read_rows(tmp_path / "run" / "paid.jsonl")
    assert [(row["dev"], row["ph"]) for row in paid] == [(d, p) for p in ("open", "close") for d in ("cpu:0", "cpu:1")]


def test_paid_time_starts_with_the_launchers_process_and_holds_the_attempt(recipe_file, tmp_path):
    launch(recipe_file, tmp_path / "run", "done")
    opened, _, closed, _ = (row["t"] for row in read_rows(tmp_path / "run" / "paid.jsonl"))
    born_ns = round((psutil.Process().create_time() - psutil.boot_time()) * 1e9)
    assert abs(opened - born_ns) < 2_000_000_000  # psutil knows the boot to a second only
    assert closed == attempt_end(tmp_path / "run")["t"]


def test_a_finished_run_says_so_and_starts_nothing(recipe_file, tmp_path):
    launch(recipe_file, tmp_path / "run", "done")
    again = launch(recipe_file, tmp_path / "run", "done")
    assert (again.exit, again.attempt) == (Exit.DONE, None)
    assert "--new" in " ".join(again.said)
    assert RunFolder(tmp_path / "run").attempts() == [1]
    assert launch(recipe_file, tmp_path / "run", "done", new=True).run == tmp_path / "run-2"
    assert next_free(tmp_path / "run") == tmp_path / "run-3"


def test_a_finished_run_goes_on_when_its_limits_change(recipe_file, tmp_path):
    launch(recipe_file, tmp_path / "run", "done")
    assert launch(recipe_file, tmp_path / "run", "done", sets=("budget.device_hours=5",)).attempt == 2


def test_workers_get_their_place(recipe_file, tmp_path):
    launch(recipe_file, tmp_path / "run", "env")
    run = RunFolder(tmp_path / "run")
    seen = [json.loads(log_file(run, 1, rank).read_text()) for rank in (0, 1)]
    threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    for rank, env in enumerate(seen):
        assert env == {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "OMP_NUM_THREADS": threads,
            "--run-dir": str(tmp_path / "run"),
            "--attempt": "1",
            "--paid-before-ns": "0",
            "--data-folder": env["--data-folder"],
        }
        assert Path(env["--data-folder"], "train").is_dir()


def test_a_failing_rank_ends_the_others_and_its_last_words_are_shown(recipe_file, tmp_path):
    outcome = launch(recipe_file, tmp_path / "run", "fail", "1", sets=("resilience.restarts_limit=0",))
    assert outcome.exit == Exit.NEEDS_PERSON
    assert outcome.reason == "rank 1 ended with exit code 1; 0 restarts without a new checkpoint"
    assert "  rank 1 saw something bad" in outcome.said
    assert attempt_end(tmp_path / "run")["exit"] == 70


def test_a_killed_rank_is_named_with_its_signal_and_stubborn_ranks_end_too(recipe_file, children, tmp_path):
    outcome = launch(recipe_file, tmp_path / "run", "kill", "0")
    assert outcome.reason == "rank 0 was killed by SIGKILL; 3 restarts without a new checkpoint"
    assert [attempt_end(tmp_path / "run", attempt)["signal"] for attempt in (1, 2, 3, 4)] == [signal.SIGKILL] * 4
    assert children() == []


@pytest.mark.parametrize("sets", [("layout.dp=3",), ("batch.tokens=768",)])
def test_a_layout_that_cannot_be_is_refused_before_anything_is_made(recipe_file, tmp_path, sets):
    with pytest.raises(UsageError, match="use"):
        launch(recipe_file, tmp_path / "run", "done", sets=sets)
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_learns_something_else_is_refused_by_field(recipe_file, tmp_path):
    launch(recipe_file, tmp_path / "run", "done")
    with pytest.raises(UsageError, match=r"optimizer\.learning_rate"):
        launch(recipe_file, tmp_path / "run", "done", sets=("optimizer.learning_rate=0.5",))


def start_agent(recipe: Path, folder: Path, mode: str = "obey", *sets: str) -> subprocess.Popen:
    """A launcher in a process of its own, with two workers that obey control/stop (or not), and both running."""
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); from test_local import launch\n"
        "recipe, folder, mode, *sets = sys.argv[2:]\n"
        "outcome = launch(Path(recipe), Path(folder), mode, sets=sets); print(*outcome.said); sys.exit(outcome.exit)"
    )
    command = [sys.executable, "-c", code, str(STAND_IN.parent), str(recipe), str(folder), mode, *sets]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until(lambda: agent.poll() is not None or all((folder / f"ready-{rank}").exists() for rank in (0, 1)))
    assert agent.poll() is None, agent.communicate()[0]
    return agent


def until(condition, limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_ask_for_a_clean_stop_and_a_second_one_is_harmless(recipe_file, tmp_path, number):
    agent = start_agent(recipe_file, tmp_path / "run")
    agent.send_signal(number)
    until(lambda: (tmp_path / "run" / "control" / "stop").exists())
    agent.send_signal(signal.SIGINT)
    said = agent.communicate(timeout=60)[0]
    assert agent.returncode == Exit.START_AGAIN, said
    end = attempt_end(tmp_path / "run")
    assert end["exit"] == 75
    assert number.name in end["reason"]
    assert launch(recipe_file, tmp_path / "run", "done").attempt == 2, "the wish to stop outlived its attempt"


def test_a_save_that_takes_longer_than_the_grace_is_dropped_and_the_run_can_go_on(recipe_file, children, tmp_path):
    agent = start_agent(recipe_file, tmp_path / "run", "ignore", "resilience.grace_s=1")
    workers = psutil.Process(agent.pid).children()
    agent.send_signal(signal.SIGTERM)
    said = agent.communicate(timeout=60)[0]
    assert agent.returncode == Exit.START_AGAIN, said
    assert "within the 1 s of grace" in attempt_end(tmp_path / "run")["reason"]
    assert not any(worker.is_running() for worker in workers)
    assert launch(recipe_file, tmp_path / "run", "done").exit == Exit.DONE


def test_an_interrupt_from_the_terminal_has_no_deadline(recipe_file, tmp_path):
    agent = start_agent(recipe_file, tmp_path / "run", "ignore", "resilience.grace_s=1")
    agent.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        agent.wait(3)
    agent.send_signal(signal.SIGTERM)  # now somebody means it
    assert agent.wait(60) == Exit.START_AGAIN


def test_a_fault_is_mended_as_often_as_allowed_and_each_is_an_incident(recipe_file, tmp_path):
    outcome = launch(recipe_file, tmp_path / "run", "fail", "1", sets=("resilience.restarts_limit=2",))
    run = RunFolder(tmp_path / "run")
    assert (outcome.exit, outcome.attempt) == (Exit.NEEDS_PERSON, 3)
    found = read_incidents(run.incidents)
    assert [(one.attempt, one.rank, one.kind, one.rung) for one in found] == [
        (1, 1, "exception", "RestartWorkers"),
        (2, 1, "exception", "RestartWorkers"),
        (3, 1, "exception", "Stop"),
    ]
    paid = read_rows(run.paid_file)
    opened = [row["t"] for row in paid if row["ph"] == "open" and row["dev"] == "cpu:0"]
    closed = [row["t"] for row in paid if row["ph"] == "close" and row["dev"] == "cpu:0"]
    assert opened[1:] == closed[:-1], "time between the attempts of one launcher is paid for"


def test_a_word_of_a_rank_that_another_start_is_useless_stands(recipe_file, tmp_path):
    outcome = launch(recipe_file, tmp_path / "run", "refuse")
    assert (outcome.exit, outcome.attempt) == (Exit.INPUT, 1)


def test_a_limit_that_is_shorter_than_the_measured_phase_is_refused(recipe_file, tmp_path):
    launch(recipe_file, tmp_path / "run", "done")
    span = {"k": "span", "q": 1, "id": 1, "p": "eval", "t0": 0, "t1": 90_000_000_000}
    with (tmp_path / "run" / "events" / "attempt-1" / "rank-0.jsonl").open("a") as journal:
        journal.write(json.dumps(span, separators=(",", ":")) + '\n{"k":"span","p"')
    with pytest.raises(UsageError, match=r"resilience\.phase_limit_s: 60 s is shorter than eval .* took 90\.0 s"):
        launch(recipe_file, tmp_path / "run", "done", sets=("resilience.phase_limit_s=60",))
    assert launch(recipe_file, tmp_path / "run", "done", sets=("resilience.phase_limit_s=200",)).attempt == 2


def test_contradictory_limits_are_refused(recipe_file, tmp_path):
    with pytest.raises(UsageError, match="phase_limit_s is below step_limit_s"):
        launch(recipe_file, tmp_path / "run", "done", sets=("resilience.phase_limit_s=2",))


def test_cold_or_warm(recipe_file, tmp_path):
    from argosy.launch.local import _starter
    from argosy.launch.starting import ENTRY, ColdStart
    from argosy.recipe.load import load_recipe

    run = RunFolder.create(tmp_path / "run", load_recipe(recipe_file, ("resilience.warm=false",)))
    assert isinstance(_starter(run, run.recipe(), None, ENTRY), ColdStart)


def test_stop_waits_for_the_end_and_a_second_launcher_is_turned_away(recipe_file, tmp_path):
    agent = start_agent(recipe_file, tmp_path / "run")
    with pytest.raises(Locked, match=str(agent.pid)):
        launch(recipe_file, tmp_path / "run", "done")
    stopped = stop(tmp_path / "run", timeout_s=60)
    agent.communicate(timeout=60)
    assert (stopped.exit, stopped.reason) == (Exit.START_AGAIN, "asked to stop: argosy stop")
    with pytest.raises(UsageError, match="nothing to stop"):
        stop(tmp_path / "run", timeout_s=60)


def test_after_a_killed_launcher_no_worker_is_left_and_the_next_start_works(recipe_file, tmp_path):
    agent = start_agent(recipe_file, tmp_path / "run")
    workers = psutil.Process(agent.pid).children()
    assert len(workers) == 2
    agent.kill()
    agent.communicate()
    psutil.wait_procs(workers, timeout=30)
    assert not any(worker.is_running() for worker in workers)
    run = RunFolder(tmp_path / "run")
    with run.lock():  # as the next launcher holds it: the dead attempt must not look alive
        paid_ns = paid_before_ns(run)
        assert 0 < paid_ns == paid_before_ns(run)
    assert launch(recipe_file, tmp_path / "run", "done").attempt == 2


def test_the_budget_counts_what_was_paid_before(recipe_file, tmp_path):
    launch(recipe_file, tmp_path / "run", "done")
    rows = read_rows(tmp_path / "run" / "paid.jsonl")
    paid_ns = sum(row["t"] if row["ph"] == "close" else -row["t"] for row in rows)
    assert paid_before_ns(RunFolder(tmp_path / "run")) == paid_ns
    launch(recipe_file, tmp_path / "run", "env", sets=("budget.device_hours=5",))
    told = json.loads(log_file(RunFolder(tmp_path / "run"), 2, 0).read_text())["--paid-before-ns"]
    assert int(told) == paid_ns


def test_without_a_terminal_the_launcher_prints_plain_lines(recipe_file, tmp_path):
    stream = io.StringIO()
    worker = (sys.executable, "-IS", str(STAND_IN), "done")
    train(recipe_file, (), 1, tmp_path / "run", live=LiveLine(stream), worker_command=worker)
    assert "attempt 1, 1 × cpu" in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_the_launcher_has_no_threads_and_no_torch(recipe_file, tmp_path):
    """Its fork for the data and its workers' death signal rely on the first, its quick start on the second."""
    code = (
        "import sys, threading; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from test_local import launch; launch(Path(sys.argv[2]), Path(sys.argv[3]), 'done')\n"
        "print('torch' in sys.modules, threading.active_count())"
    )
    command = [sys.executable, "-c", code, str(STAND_IN.parent), str(recipe_file), str(tmp_path / "run")]
    assert subprocess.check_output(command, text=True).split() == ["False", "1"]
