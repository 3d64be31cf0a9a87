"""The writer against real trouble: full storage, slow storage, SIGKILL."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from argosy.journal.heartbeat import read_beat
from argosy.journal.reader import read_file
from argosy.journal.writer import Writer

FILLS_UP = """
import resource, signal, sys
from pathlib import Path
from argosy.journal.recorder import Recorder
from argosy.journal.schema import Header

path = Path(sys.argv[1])
recorder = Recorder(path, Header.of_this_process("r", 1, 0, 1, "cpu:0"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 250, hard))
for step in range(10):
    recorder.end_step(step, loss_tokens=1)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
for step in range(10, 13):
    recorder.end_step(step, loss_tokens=1)
recorder.close()
"""

WRITES_UNTIL_KILLED = """
import sys
import time
from pathlib import Path
from argosy.journal.heartbeat import HeartbeatPage
from argosy.journal.recorder import Recorder
from argosy.journal.schema import Header

folder = Path(sys.argv[1])
header = Header.of_this_process("r", 1, 0, 1, "cpu:0")
page = HeartbeatPage(folder / "heartbeat", attempt=1, rank=0, boot_id=header.boot_id)
recorder = Recorder(folder / "rank-0.jsonl", header, page)
step = 0
while True:
    with recorder.phase("forward"):
        time.sleep(0.0005)
    recorder.end_step(step, loss_tokens=1)
    step += 1
"""


def test_full_storage_drops_counts_says_so_once_and_recovers(tmp_path: Path) -> None:
    """A file-size limit cuts a write in two, as a full disk does."""
    path = tmp_path / "rank-0.jsonl"
    done = subprocess.run([sys.executable, "-c", FILLS_UP, str(path)], capture_output=True, text=True, check=True)
    assert done.stderr.count("journal records are dropped") == 1
    file = read_file(path)
    assert file is not None
    steps = file.steps.step.tolist()
    assert steps[-3:] == [10, 11, 12]
    assert file.torn_lines == 1
    (drop,) = file.of_kind("drop")
    assert drop["n"] == 13 - len(steps)
    assert drop["why"]
    # header is 0; 13 steps, the line of the sampled one, the drop record, close: the gap is what was lost
    assert file.last_seq == 13 + 1 + 1 + 1


def test_storage_without_any_room_never_raises(capfd: object) -> None:
    writer = Writer(Path("/dev/full"))
    assert not any(writer.put("step", {"s": step}, droppable=True) for step in range(5))
    writer.close()


def test_slow_storage_costs_training_its_share_and_no_more(tmp_path: Path) -> None:
    """A pipe that is emptied rarely blocks its writer, as a stalled file system does."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    stop = threading.Event()
    taken: list[bytes] = []

    def drain() -> None:
        with path.open("rb", buffering=0) as pipe:
            while chunk := pipe.read(1 << 16):
                taken.append(chunk)
                stop.wait(0.1)

    reader = threading.Thread(target=drain)
    reader.start()
    writer = Writer(path)
    blocked, begin = 0.0, time.monotonic()
    results = []
    while time.monotonic() - begin < 1.0:
        before = time.monotonic()
        results.append(writer.put("step", {"text": "x" * 4000}, droppable=True))
        blocked += time.monotonic() - before
        time.sleep(0.0005)
    stop.set()
    assert writer.put("close", {})
    writer.close()
    reader.join()
    assert False in results  # it gave up...
    assert blocked < 0.5  # ...instead of waiting all the time
    assert b'"k":"drop"' in b"".join(taken)


def test_sigkill_loses_at_most_the_last_record(tmp_path: Path) -> None:
    dice = random.Random(0)
    for trial in range(3):
        folder = tmp_path / str(trial)
        folder.mkdir()
        process = subprocess.Popen([sys.executable, "-c", WRITES_UNTIL_KILLED, str(folder)])
        page = folder / "heartbeat"
        try:
            while not (page.exists() and (beat := read_beat(page)) and beat.step > 50):
                assert process.poll() is None
                time.sleep(0.005)
            time.sleep(dice.uniform(0, 0.05))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        beat, file = read_beat(page), read_file(folder / "rank-0.jsonl")
        assert beat is not None
        assert file is not None
        assert file.steps.step.tolist() == list(range(len(file.steps)))
        assert len(file.steps) - beat.step in (0, 1)
        assert file.last_seq >= beat.seq
        assert beat.mono_ns >= file.steps.t0[-1]
