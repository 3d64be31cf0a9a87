"""What is collected from a rank that hangs, and from the kernel about one that was killed for its memory."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from argosy.journal.heartbeat import HeartbeatPage
from argosy.resilience.memory_kills import MemoryKills, counter_file, kills
from argosy.resilience.signs import SignReader, process_state
from argosy.resilience.stacks import collect_stacks, stacks_file

HANG = """
import ctypes, sys, time
from pathlib import Path
from argosy.resilience.stacks import dump_on_signal
dump_on_signal(Path(sys.argv[1]))
def hold_the_lock():
    ctypes.PyDLL(None).usleep(60_000_000)
def loop_for_ever():
    while True:
        pass
print(flush=True)
globals()[sys.argv[2]]()
"""


@pytest.mark.parametrize("how", ["hold_the_lock", "loop_for_ever"])
def test_a_rank_that_hangs_shows_its_stack(tmp_path: Path, how: str) -> None:
    file = stacks_file(tmp_path, 3)
    process = subprocess.Popen([sys.executable, "-c", HANG, str(file), how], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.1)
        first = collect_stacks({3: file}, {3: process.pid})[3]
        again = collect_stacks({3: file}, {3: process.pid})[3]
    finally:
        process.kill()
        process.communicate()
    assert f"in {how}" in first
    if how == "loop_for_ever":  # the signal ends a sleep in native code
        assert again.count(f"in {how}") == 1, "only what is new"


def test_a_stopped_process_is_described_from_outside_and_not_ended_by_the_question(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        os.kill(process.pid, signal.SIGSTOP)
        while process_state(process.pid) != "T":
            time.sleep(0.005)
        said = collect_stacks({0: stacks_file(tmp_path, 0)}, {0: process.pid})[0]
        assert said
        os.kill(process.pid, signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
    finally:
        process.kill()
        process.wait()
    assert process_state(process.pid) is None


def test_a_page_is_read_from_outside_as_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "page"
    with SignReader({0: file, 1: tmp_path / "none"}) as reader:
        assert reader.read(0).beat is None
        page = HeartbeatPage(file, attempt=1, rank=0, boot_id="0f4d5b1e-7e2a-4c58-9d3c-0123456789ab")
        assert reader.read(0).beat is None, "opened, and nothing is said yet"
        page.words[0] = 5
        page.words[1] = 7
        page.start_beating()
        sign = reader.read(0, os.getpid())
        assert sign.beat is not None
        assert (sign.beat.step, sign.phase, sign.span, sign.stopped) == (7, None, None, False)
        first = sign.beat.beat_ns
        give_up = time.monotonic() + 30
        while (beat := reader.read(0).beat) is not None and beat.beat_ns == first:
            assert time.monotonic() < give_up, "it does not beat"
            time.sleep(0.02)
        page.close()
        assert reader.read(1).beat is None


def test_memory_kills_are_counted_from_when_a_rank_was_first_seen(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "memory.events"
    monkeypatch.setattr("argosy.resilience.memory_kills.counter_file", lambda pid: file if pid == 7 else None)
    file.write_text("low 0\noom 4\noom_kill 3\n")
    memory = MemoryKills()
    memory.note({0: 7, 1: 8})
    assert not memory.killed(0)
    assert not memory.killed(1)
    file.write_text("low 0\noom 5\noom_kill 4\n")
    assert memory.killed(0)
    assert not memory.killed(1), "nothing is known of its group"


def test_counters_that_cannot_be_read_are_unknown(tmp_path: Path) -> None:
    assert kills(tmp_path / "none") is None
    (tmp_path / "odd").write_text("oom_kill many\n")
    assert kills(tmp_path / "odd") is None
    assert counter_file(2**22 + 1) is None
    own = counter_file(os.getpid())
    assert own is None or kills(own) is not None
