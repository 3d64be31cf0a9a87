"""What the reader makes of files that were cut, mixed up, or written by another version."""

import fcntl
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from argosy.errors import InputError
from argosy.journal.clock import anchor, mono_ns, process_start_ns
from argosy.journal.heartbeat import HeartbeatPage, read_beat
from argosy.journal.liveness import is_held
from argosy.journal.reader import OPEN, collect, read_file, read_run
from argosy.journal.schema import Header, sampled

BOOT = "0f4d5b1e-7e2a-4c58-9d3c-0123456789ab"


def header(**more: object) -> dict[str, object]:
    known = {"k": "header", "q": 0, "run": "r", "attempt": 1, "rank": 0, "world": 1, "device": "cpu:0"}
    clock = {"host": "h", "boot_id": BOOT, "pid": 1, "t": 5, "wall": 9, "boot": 5, "proc_start": 1}
    return known | clock | {"phys": ["forward", "gc"]} | more


def write(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def step(q: int, s: int, **more: object) -> dict[str, object]:
    return {"k": "step", "q": q, "s": s, "t0": 10 * s, "t1": 10 * s + 10, "a": [3], "n": [7]} | more


def test_columns_of_steps(tmp_path: Path) -> None:
    path = write(tmp_path / "f", header(), step(1, 0, l=2.5, g=1, r=0.1), step(2, 1, a=[1, 2], v=3, x=1, l=None))
    file = read_file(path)
    assert file is not None
    assert file.steps.amounts.tolist() == [[3, 0], [1, 2]]
    assert file.steps.tokens.tolist() == [[7, 0, 0]] * 2
    assert file.steps.visit.tolist() == [0, 3]
    assert file.steps.skipped.tolist() == [False, True]
    assert file.steps.loss[0] == 2.5
    assert np.isnan(file.steps.loss[1])
    assert (file.last_ns, file.last_seq, file.torn_lines) == (20, 2, 0)


def test_a_span_is_one_row_however_often_it_was_written(tmp_path: Path) -> None:
    opened = {"k": "span", "q": 1, "id": 1, "p": "eval", "t0": 10, "t1": None}
    other = {"k": "span", "q": 2, "id": 2, "p": "gc", "t0": 12, "t1": None, "d": 1}
    closed = opened | {"q": 3, "t1": 30, "a": [4]}
    file = read_file(write(tmp_path / "f", header(), closed, other, opened))
    assert file is not None
    assert file.spans.t1.tolist() == [30, OPEN]
    assert file.spans.seq.tolist() == [1, 2]
    assert file.spans.close_seq.tolist() == [3, 2]
    assert [file.spans.names[i] for i in file.spans.phys] == ["eval", "gc"]
    assert file.spans.nested_rows.tolist() == [0]


def test_damaged_lines_are_counted_and_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "f", header(), step(1, 0), step(2, 1))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"k":"step","q":1,"s\n' + b"[1]\n" + lines[2] + lines[1][:20])
    file = read_file(path)
    assert file is not None
    assert file.steps.step.tolist() == [1]
    assert file.torn_lines == 3
    assert file.torn_end


def test_every_cut_of_a_file_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "f", header(), step(1, 0), step(2, 1))
    content = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        file = read_file(path)
        whole = sum(end <= cut for end in ends)
        if whole == 0:
            assert file is None
        else:
            assert file is not None
            assert len(file.steps) == whole - 1
            assert file.torn_end == (cut not in ends)


def test_unknown_kinds_and_fields_are_kept(tmp_path: Path) -> None:
    news = {"k": "weather", "q": 2, "rain": True}
    file = read_file(write(tmp_path / "f", header(v=9, moon="full"), step(1, 0, zz=1), news))
    assert file is not None
    assert file.events == [news]
    assert file.header["moon"] == "full"


def test_the_order_of_records_does_not_matter() -> None:
    rows = [header(), step(1, 0), step(2, 1), {"k": "close", "q": 3, "t": 99}]
    straight, mixed = collect(rows), collect(reversed(rows))
    assert straight is not None
    assert mixed is not None
    assert straight.steps.step.tolist() == mixed.steps.step.tolist() == [0, 1]
    assert straight.closed_ns == mixed.closed_ns == 99


def test_a_run_with_all_its_parts(tmp_path: Path) -> None:
    for attempt in (2, 10):
        for rank in (10, 9):
            write(tmp_path / f"events/attempt-{attempt}/rank-{rank}.jsonl", header(attempt=attempt, rank=rank))
    write(tmp_path / "events/attempt-2/agent-h.jsonl", header(attempt=2, rank=None, device=None))
    (tmp_path / "events/attempt-2/rank-11.jsonl").write_text('{"k":"hea')
    write(tmp_path / "paid.jsonl", {"k": "paid", "dev": "cpu:9"})
    page = HeartbeatPage(tmp_path / "heartbeat/x", attempt=2, rank=9, boot_id=BOOT)
    page.words[0] = 77
    page.close()
    HeartbeatPage(tmp_path / "heartbeat/never-beat", attempt=2, rank=10, boot_id=BOOT).close()
    journal = read_run(tmp_path)
    assert [(file.attempt, file.rank) for file in journal.ranks] == [(2, 9), (2, 10), (10, 9), (10, 10)]
    assert [file.name for file in journal.agents] == ["events/attempt-2/agent-h.jsonl"]
    assert journal.headless == ["events/attempt-2/rank-11.jsonl"]
    (tmp_path / "heartbeat/odd").write_bytes(b"?" * 64)
    (tmp_path / "heartbeat/new").touch()
    assert read_run(tmp_path).headless == ["events/attempt-2/rank-11.jsonl", "heartbeat/odd"]
    assert list(journal.beats) == [(2, 9)]
    assert journal.beats[2, 9].mono_ns == 77
    assert journal.paid == [{"k": "paid", "dev": "cpu:9"}]
    assert not journal.live


def test_no_run_and_no_heartbeat_page_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run folder"):
        read_run(tmp_path)
    (tmp_path / "page").write_bytes(b"x" * 63)
    with pytest.raises(InputError, match="63 bytes"):
        read_beat(tmp_path / "page")


def test_a_lock_is_seen_without_taking_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)
    with lock.open("w") as handle:
        assert not is_held(lock)
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert is_held(lock)
        other = tmp_path / "other"
        other.touch()
        assert not is_held(other)
    assert not is_held(lock)


def test_process_start_is_the_kernels_and_at_most_two_ticks_early() -> None:
    before = mono_ns()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    after = mono_ns()
    time.sleep(0.02)
    assert before - 20_000_000 <= process_start_ns(process.pid) <= after
    process.communicate(b"\n")


def test_header_round_trip_and_anchor() -> None:
    begin = mono_ns()
    made = Header.of_this_process("r", 3, None, 4, None, proc_start_ns=17, layout={"dp": 2})
    assert begin <= made.t <= mono_ns()
    assert made.proc_start == 17
    stamps = anchor()
    assert abs((stamps["wall"] - made.wall) - (stamps["t"] - made.t)) < 50_000_000
    fields = json.loads(json.dumps(made.fields()))
    assert Header(**(fields | {"phys": tuple(fields["phys"])})) == made


def test_sampled_steps_are_the_same_share_for_every_seed() -> None:
    for seed in (0, 1, 12345):
        assert sum(sampled(step, seed, 100) for step in range(1000)) == 10
