"""Worker processes: started, seen to end, ended, and never left behind."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from argosy.launch.workers import Ended, LogFollower, Workers, last_lines, signal_name

SLEEP = (sys.executable, "-IS", "-c", "import time; time.sleep(600)")


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-IS", "-c", code)


@pytest.fixture
def workers():
    with Workers() as workers:
        yield workers


def until(condition, limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def test_ends_are_seen_with_code_and_signal(workers, tmp_path):
    workers.start(0, python("raise SystemExit(66)"), {}, tmp_path / "0")
    workers.start(1, python("import os; os.kill(os.getpid(), 9)"), {}, tmp_path / "1")
    while workers.running:
        workers.wait(10)
    assert sorted(workers.ended, key=lambda end: end.rank) == [Ended(0, 66), Ended(1, None, 9)]
    assert [end.how for end in sorted(workers.ended, key=lambda end: end.rank)] == [
        "ended with exit code 66",
        "was killed by SIGKILL",
    ]


def test_of_two_that_ended_together_the_killed_one_comes_first(workers, children, tmp_path):
    workers.start(0, python("raise SystemExit(1)"), {}, tmp_path / "0")
    workers.start(1, python("import os; os.kill(os.getpid(), 9)"), {}, tmp_path / "1")
    until(lambda: all(p.status() == psutil.STATUS_ZOMBIE for p in children()))
    assert [end.rank for end in workers.wait(10)] == [1, 0]


def test_wait_returns_early_when_woken(workers, tmp_path):
    workers.start(0, SLEEP, {}, tmp_path / "0")
    reading, writing = os.pipe()
    os.write(writing, b"x")
    began = time.monotonic()
    assert workers.wait(60, reading) == []
    assert time.monotonic() - began < 30
    os.close(reading)
    os.close(writing)


def test_terminate_lets_a_worker_end_and_kills_one_that_does_not(workers, tmp_path):
    on_sigterm = "import signal, sys, time; signal.signal(15, {}); print('ready', flush=True); time.sleep(600)"
    polite, stubborn = python(on_sigterm.format("lambda *_: sys.exit(75)")), python(on_sigterm.format("signal.SIG_IGN"))
    workers.start(0, polite, {}, tmp_path / "0")
    workers.start(1, stubborn, {}, tmp_path / "1")
    until(lambda: all(last_lines(tmp_path / str(rank), 1) == ["ready"] for rank in (0, 1)))
    workers.terminate(grace_s=1)
    assert workers.ended == [Ended(0, 75), Ended(1, None, 9)]


def test_leaving_the_block_ends_all(children, tmp_path):
    with Workers() as workers:
        workers.start(0, SLEEP, {}, tmp_path / "0")
        (child,) = children()
    assert not child.is_running()


def test_a_worker_dies_with_its_launcher(tmp_path):
    launcher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from argosy.launch.workers import Workers\n"
            f"Workers().start(0, {SLEEP!r}, {{}}, Path(sys.argv[1]) / 'log'); print(flush=True); time.sleep(600)",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
    )
    assert launcher.stdout is not None
    launcher.stdout.readline()
    (worker,) = psutil.Process(launcher.pid).children()
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()
    until(lambda: not worker.is_running())


def test_a_terminals_interrupt_does_not_reach_the_workers(workers, children, tmp_path):
    workers.start(0, SLEEP, {}, tmp_path / "0")
    (child,) = children()
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)


def test_last_lines_of_a_log(tmp_path):
    log = tmp_path / "log"
    assert last_lines(log, 3) == []
    log.write_text("".join(f"line {n}\n" for n in range(20_000)))
    assert last_lines(log, 2) == ["line 19998", "line 19999"]


def test_a_followed_log_gives_each_whole_line_once(tmp_path):
    log = tmp_path / "log"
    log.touch()
    follower = LogFollower(log)
    seen = []
    for piece in ("one\ntw", "o\n", "", "three\n"):
        with log.open("a") as stream:
            stream.write(piece)
        seen.append(follower.new_lines())
    assert seen == [["one"], ["two"], [], ["three"]]


def test_signals_have_names():
    assert signal_name(signal.SIGSEGV) == "SIGSEGV"
    assert signal_name(250) == "signal 250"
