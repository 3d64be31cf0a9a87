"""The recorder on a clock that the test turns, and on the real one."""

import gc
import json
import threading
import time
from pathlib import Path

import pytest

from argosy.errors import UsageError
from argosy.journal.collectives import calls
from argosy.journal.heartbeat import HeartbeatPage, State, read_beat
from argosy.journal.phys import INDEX, PHYS
from argosy.journal.reader import OPEN, Journal, JournalFile, read_file
from argosy.journal.recorder import NULL, Recorder
from argosy.journal.schema import SAMPLED_STEP_BYTES, STEP_BYTES, Header
from argosy.ledger.books import keep_books


class Clock:
    """Stands still unless the test moves it."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def run(self, ns: int) -> None:
        self.now += ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _no_collection() -> object:
    """Pauses of the real collector would be recorded too."""
    gc.disable()
    yield
    gc.enable()


def header(**more: object) -> Header:
    known: dict[str, object] = {"seed": 0, "sample_every": 1_000_000}
    return Header.of_this_process("r", 1, 0, 2, "cpu:0", **(known | more))  # type: ignore[arg-type]


def finished(recorder: Recorder, path: Path) -> JournalFile:
    recorder.close()
    file = read_file(path)
    assert file is not None
    return file


def named(file: JournalFile, row: int) -> dict[str, int]:
    amounts = file.steps.amounts[row]
    return {file.phys[i]: int(ns) for i, ns in enumerate(amounts) if ns}


def test_self_times_of_nested_phases(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "j", header(), clock=clock)
    recorder.next_step = 1  # step 0 is always sampled
    clock.run(5)
    with recorder.phase("forward"):
        clock.run(10)
        with recorder.collective("fsdp", "all_gather", "g", 8):
            clock.run(3)
        clock.run(1)
        with recorder.phase("forward"):
            clock.run(2)
    clock.run(7)
    recorder.end_step(1, loss_tokens=10, pad_tokens=2, loss=1.5, grad_norm=2.0, lr=1e-3)
    file = finished(recorder, tmp_path / "j")
    assert named(file, 0) == {"forward": 13, "comm.exposed.fsdp": 3}
    assert (file.steps.t0[0], file.steps.t1[0]) == (1_000, 1_028)
    assert file.steps.tokens.tolist() == [[10, 0, 2]]
    assert (file.steps.loss[0], file.steps.grad_norm[0], file.steps.lr[0]) == (1.5, 2.0, 1e-3)


def test_a_span_takes_its_phases_out_of_the_step_around_it(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "j", header(), clock=clock)
    with recorder.phase("forward"):
        clock.run(10)
    with recorder.span("eval"):
        clock.run(4)
        with recorder.phase("data_wait"):
            clock.run(6)
        with recorder.span("ckpt_block"):
            clock.run(5)
        clock.run(1)
    clock.run(2)
    recorder.end_step(0, loss_tokens=1)
    file = finished(recorder, tmp_path / "j")
    assert named(file, 0) == {"forward": 10}
    spans = file.spans
    assert [spans.names[i] for i in spans.phys] == ["eval", "ckpt_block"]
    assert (spans.t1 - spans.t0).tolist() == [16, 5]
    assert spans.depth.tolist() == [0, 1]
    inside = {name: int(ns) for name, ns in zip(file.phys, spans.nested[0], strict=False) if ns}
    assert inside == {"data_wait": 6}  # its own time is what is left


def test_windows_begin_after_start_up_and_touch_from_then_on(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "j", header(), clock=clock)
    recorder.span_closed("startup.import", 200, 900)
    clock.run(10)
    with recorder.span("startup.model_init"):
        clock.run(20)
    for step in range(3):
        clock.run(5)
        recorder.end_step(step, loss_tokens=1)
    file = finished(recorder, tmp_path / "j")
    assert file.steps.t0.tolist() == [1_030, 1_035, 1_040]
    assert file.steps.t1.tolist() == [1_035, 1_040, 1_045]
    assert file.spans.t0.tolist() == [200, 1_010]


def test_an_open_span_is_in_the_file_before_it_ends(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "j", header(), clock=clock)
    with recorder.span("eval"):
        file = read_file(tmp_path / "j")
        assert file is not None
        assert file.spans.t1.tolist() == [OPEN]
    assert finished(recorder, tmp_path / "j").spans.t1.tolist() == [1_000]


def test_visits_count_after_a_rollback(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "j", header(), clock=clock)
    for step in (0, 1, 2):
        recorder.end_step(step, loss_tokens=1)
    recorder.event("restore", id="step-1", to=1, tier="storage", why="nan")
    assert recorder.next_step == 1
    for step in (1, 2, 3):
        recorder.end_step(step, loss_tokens=1, skipped=step == 3)
    file = finished(recorder, tmp_path / "j")
    assert file.steps.step.tolist() == [0, 1, 2, 1, 2, 3]
    assert file.steps.visit.tolist() == [0, 0, 0, 1, 1, 0]
    assert file.steps.skipped.tolist() == [False] * 5 + [True]


def test_collectives_are_recorded_on_sampled_steps_only_and_numbered_on_all(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "j", header(seed=1, sample_every=3), clock=clock)
    for step in range(6):
        for _ in range(2):
            with recorder.collective("dp", "all_reduce", "g", 4):
                clock.run(3)
        recorder.end_step(step, loss_tokens=1)
    made = list(calls(finished(recorder, tmp_path / "j").events))
    assert [call.step for call in made] == [2, 2, 5, 5]  # (step + seed) is a multiple of 3
    assert [call.number for call in made] == [4, 5, 10, 11]
    assert all(call.done_ns - call.waited_ns == 3 for call in made)


def test_collector_pauses_are_phases_of_their_own(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "j", header())
    keep = [[i] for i in range(200_000)]
    with recorder.phase("forward"):
        begin = time.monotonic_ns()
        gc.collect()
        took = time.monotonic_ns() - begin
    recorder.end_step(0, loss_tokens=1)
    times = named(finished(recorder, tmp_path / "j"), 0)
    assert len(keep) == 200_000
    assert 0.8 * took < times["gc"] <= took


def test_a_collection_between_reading_the_clock_and_using_it_makes_no_time_negative(
    tmp_path: Path, clock: Clock
) -> None:
    """Python 3.12 and later collect right after a call returns, so also after that of the clock."""
    pausing = False

    def interrupted() -> int:
        nonlocal pausing
        now = clock()
        if pausing:
            pausing = False
            recorder._on_gc("start", {})
            clock.run(50)
            recorder._on_gc("stop", {})
        return now

    recorder = Recorder(tmp_path / "j", header(), clock=interrupted)
    with recorder.phase("forward"):
        clock.run(10)
        pausing = True
    clock.run(5)
    with recorder.phase("backward"):
        clock.run(7)
    recorder.end_step(0, loss_tokens=1)
    assert named(finished(recorder, tmp_path / "j"), 0) == {"forward": 10, "gc": 50, "backward": 7}


def test_times_and_what_is_left_sum_to_the_window_whatever_interrupts(tmp_path: Path) -> None:
    """Collections at any moment, also inside the recorder: no time is negative and none is counted twice."""
    recorder = Recorder(tmp_path / "j", header(sample_every=2))
    gc.enable()
    gc.set_threshold(1)
    try:
        for step in range(50):
            for _ in range(20):
                with recorder.phase("forward"), recorder.phase("data_wait"):
                    [[] for _ in range(5)]
                with recorder.collective("fsdp", "all_gather", "g", 1):
                    {}.copy()
            recorder.end_step(step, loss_tokens=1)
    finally:
        gc.set_threshold(700, 10, 10)
    file = finished(recorder, tmp_path / "j")
    assert named(file, 1)["gc"] > 0
    assert file.steps.amounts.min() >= 0
    assert (file.steps.amounts.sum(axis=1) <= file.steps.t1 - file.steps.t0).all()


def test_a_step_record_is_small_for_the_largest_runs(tmp_path: Path, clock: Clock) -> None:
    clock.now = 366 * 86_400 * 10**9  # a host that has been up for a year
    recorder = Recorder(tmp_path / "j", header(), clock=clock)
    recorder.next_step = 3_999_999
    for name in ("data_wait", "forward", "backward", "optimizer", "gc"):
        with recorder.phase(name):
            clock.run(9_876_543_210 if name in ("forward", "backward") else 12_345_678)
    for axis in ("fsdp", "dp", "tp", "pp", "control"):
        with recorder.collective(axis, "all_gather", "g", 1):
            clock.run(98_765_432)
    recorder.end_step(3_999_999, loss_tokens=16_777_216, loss=1.23456789, grad_norm=0.123456, lr=1.23456e-5)
    recorder.close()
    line = (tmp_path / "j").read_bytes().splitlines()[1]
    assert json.loads(line)["k"] == "step"
    assert len(line) + 1 <= STEP_BYTES


def test_a_sampled_step_is_bounded_and_says_what_it_left_out(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "j", header(sample_every=1), clock=clock)
    for _ in range(500):
        with recorder.collective("fsdp", "all_gather", "fsdp", 1 << 30):
            clock.run(1_000_000)
    recorder.end_step(0, loss_tokens=1)
    file = finished(recorder, tmp_path / "j")
    written = len(list(calls(file.events)))
    assert sum(row["n"] for row in file.of_kind("drop")) == 500 - written
    rest = (tmp_path / "j").read_bytes().partition(b"\n")[2]
    assert written > 20
    assert len(rest) <= SAMPLED_STEP_BYTES


def test_heartbeat_says_step_and_last_record_at_each_switch(tmp_path: Path, clock: Clock) -> None:
    page = HeartbeatPage(tmp_path / "hb", attempt=1, rank=0, boot_id="0f4d5b1e-7e2a-4c58-9d3c-0123456789ab")
    recorder = Recorder(tmp_path / "j", header(), page, clock=clock)
    recorder.end_step(7, loss_tokens=1)
    clock.run(50)
    with recorder.phase("forward"):
        beat = read_beat(tmp_path / "hb")
        assert beat is not None
        assert (beat.mono_ns, beat.step, beat.state, beat.seq) == (1_050, 8, State.STEPPING, 1)
    recorder.close()
    recorder.close()
    beat = read_beat(tmp_path / "hb")
    assert beat is not None
    assert (beat.state, beat.seq) == (State.CLOSED, 2)


def test_events_from_another_thread_disturb_no_phase(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "j", header(), clock=clock)
    with recorder.phase("forward"):
        clock.run(5)
        thread = threading.Thread(
            target=lambda: recorder.event("ckpt", id="step-1", s=1, tier="storage", ph="committed")
        )
        thread.start()
        thread.join()
        clock.run(5)
    recorder.end_step(0, loss_tokens=1)
    file = finished(recorder, tmp_path / "j")
    assert named(file, 0) == {"forward": 10}
    assert next(file.of_kind("ckpt"))["t"] == 1_005


def test_an_exception_leaves_phases_and_spans(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "j", header(), clock=clock)
    with pytest.raises(KeyError), recorder.span("eval"), recorder.phase("forward"):
        raise KeyError
    clock.run(4)
    recorder.end_step(0, loss_tokens=1)
    assert named(finished(recorder, tmp_path / "j"), 0) == {}


def test_unknown_phase_is_named_with_the_known_ones(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "j", header())
    with pytest.raises(UsageError, match=r"'foward' is no phase.*forward"):
        recorder.phase("foward")
    recorder.close()


def test_null_recorder_takes_the_same_calls() -> None:
    with NULL.phase("forward"), NULL.span("eval"), NULL.collective("dp", "all_reduce", "g", 1):
        NULL.end_step(0, loss_tokens=1)
    NULL.event("ckpt", id="x")
    NULL.close()


def test_an_undeclared_sleep_is_unattributed_to_the_millisecond(tmp_path: Path) -> None:
    """50 ms between declared phases that nobody tells the journal about, on the real clock, through to the books."""
    recorder = Recorder(tmp_path / "j", header())
    slept = 0
    for step in range(10):
        with recorder.phase("forward"):
            time.sleep(0.002)
        if step == 5:
            begin = time.monotonic_ns()
            time.sleep(0.050)
            slept = time.monotonic_ns() - begin
        with recorder.phase("backward"):
            time.sleep(0.002)
        recorder.end_step(step, loss_tokens=1)
    recorder.event("ckpt", id="step-10", s=10, tier="storage", ph="committed")
    file = finished(recorder, tmp_path / "j")
    books = keep_books(Journal(tmp_path, "r", [file], [], [], [], {}))
    begin = int(file.steps.t0[0])
    before_first = begin - int(file.header["proc_start"])  # the start of this test's process, no part of the story
    left = books.accounts["unattributed.residual"] + books.accounts.get("stability.process_start", 0) - before_first
    assert abs(left - slept) < 1_000_000


def test_every_phase_of_the_closed_list_can_be_recorded(tmp_path: Path, clock: Clock) -> None:
    recorder = Recorder(tmp_path / "j", header(), clock=clock)
    for name in PHYS:
        with recorder.phase(name):
            clock.run(1 + INDEX[name])
    recorder.end_step(0, loss_tokens=1)
    assert named(finished(recorder, tmp_path / "j"), 0) == {name: 1 + INDEX[name] for name in PHYS}
