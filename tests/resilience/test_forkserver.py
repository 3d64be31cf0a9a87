"""Workers from the warm server: they are the supervisor's own children, they die with it, and the server may die."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from argosy.errors import StoppedError
from argosy.launch.workers import Ended, Workers
from argosy.resilience.forkserver import ForkServer, Order

HERE = Path(__file__).parent
ENTRY = "forked_worker:main"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), before]))
    try:
        with ForkServer(ENTRY) as server:
            server.wait_until_warm()
            yield server
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def until(condition, limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def test_workers_are_our_children_and_their_ends_are_seen(server: ForkServer, tmp_path: Path) -> None:
    with Workers() as workers:
        words = enumerate(("end", "raise", "die"))
        workers.fork(server, {rank: Order([word], {"RANK": str(rank)}, tmp_path / f"{rank}") for rank, word in words})
        assert {psutil.Process(pid).ppid() for pid in workers.pids.values()} == {os.getpid()}
        while workers.running:
            workers.wait(10)
    ends = sorted(workers.ended, key=lambda end: end.rank)
    assert ends == [Ended(0, 7), Ended(1, 1), Ended(2, None, signal.SIGKILL)]
    assert (tmp_path / "0").read_text() == "rank 0 says end, torch is loaded, one thread\n"
    assert "ValueError: asked to" in (tmp_path / "1").read_text()


def test_what_a_worker_started_goes_with_it(server: ForkServer, tmp_path: Path) -> None:
    with Workers() as workers:
        workers.fork(server, {0: Order(["child"], {"RANK": "0"}, tmp_path / "log")})
        until(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().strip().isdigit())
        child = psutil.Process(int((tmp_path / "log").read_text()))
        workers.kill(0)
        until(lambda: workers.wait(1) or not workers.running)
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    assert child.pid not in {one.pid for one in psutil.Process().children()}, "an orphan of a worker was not reaped"


def test_a_stopped_worker_can_be_killed(server: ForkServer, tmp_path: Path) -> None:
    with Workers() as workers:
        workers.fork(server, {0: Order(["wait"], {"RANK": "0"}, tmp_path / "log")})
        os.kill(workers.pids[0], signal.SIGSTOP)
        workers.terminate(0)
        assert workers.ended == [Ended(0, None, signal.SIGKILL)]


def test_a_server_that_cannot_warm_says_where_to_look(tmp_path: Path) -> None:
    with (
        ForkServer("no_such_module:main", tmp_path / "warm.log") as server,
        pytest.raises(StoppedError, match="ended with code 1"),
    ):
        server.wait_until_warm()
    assert "No module named 'no_such_module'" in (tmp_path / "warm.log").read_text()


def test_workers_and_server_die_with_the_supervisor_however_it_dies(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from argosy.launch.workers import Workers\n"
        "from argosy.resilience.forkserver import ForkServer, Order\n"
        f"server = ForkServer({ENTRY!r}); server.wait_until_warm(); workers = Workers()\n"
        "workers.fork(server, {0: Order(['wait'], {'RANK': '0'}, Path(sys.argv[1]) / 'log')})\n"
        "print(server.pid, *workers.pids.values(), flush=True); time.sleep(600)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    command = [sys.executable, "-c", code, str(tmp_path)]
    supervisor = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
    assert supervisor.stdout is not None
    left = [psutil.Process(int(pid)) for pid in supervisor.stdout.readline().split()]
    assert len(left) == 2
    supervisor.kill()
    supervisor.communicate()
    until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in left))
