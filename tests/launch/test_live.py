"""The progress line: rewritten on a terminal, plain lines elsewhere, and never the reason that a run ends."""

import io
import os
from pathlib import Path

import pytest

from argosy.launch import live
from argosy.launch.live import LiveLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def line(monkeypatch):
    """A LiveLine whose progress is a counter, due at every update."""
    monkeypatch.setattr(live, "_TERMINAL_EVERY_S", 0.0)
    monkeypatch.setattr(live, "_PLAIN_EVERY_S", 0.0)

    def make(stream, current=None) -> LiveLine:
        made = LiveLine(stream)
        counter = iter(range(1, 100))
        made._current = current or (lambda columns: f"step {next(counter)}")
        return made

    return make


def test_a_terminal_line_is_rewritten_and_left_before_other_text(line):
    stream = Terminal()
    shown = line(stream)
    shown.update()
    shown.update()
    shown.say("saved")
    shown.close()
    assert stream.getvalue() == "\r\x1b[2Kstep 1\r\x1b[2Kstep 2\nsaved\n\r\x1b[2Kstep 3\n"


def test_without_a_terminal_each_state_is_a_line(line):
    stream = io.StringIO()
    shown = line(stream)
    shown.update()
    shown.say("saved")
    shown.close()
    assert stream.getvalue() == "step 1\nsaved\nstep 2\n"


def test_nothing_is_shown_more_often_than_asked():
    stream = Terminal()
    shown = LiveLine(stream)
    shown._current = lambda columns: "state"
    shown._next = float("inf")
    shown.update()
    assert stream.getvalue() == ""


def test_a_fault_in_the_progress_is_told_once_and_does_not_raise(line):
    def broken(columns: int) -> str:
        raise ZeroDivisionError("no steps")

    stream = io.StringIO()
    shown = line(stream, broken)
    shown.update()
    shown.update()
    assert stream.getvalue() == "no progress is shown: ZeroDivisionError: no steps; training goes on\n"


def test_a_closed_pipe_ends_the_showing_and_nothing_else(line):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        shown = line(stream)
        shown.say("anybody there?")
        shown.update()
        shown.close()
        stream.close = lambda: None  # type: ignore[method-assign]  its buffer can never be written


def test_no_stream_shows_nothing(line):
    shown = LiveLine(None)
    shown.follow(Path("nowhere"), 1)
    shown.say("x")
    shown.update()
    shown.close()
