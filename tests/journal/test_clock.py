"""Stamps where there is no /proc, as on macOS."""

import os
from pathlib import Path

import pytest

from argosy.journal import clock


def test_without_proc_a_process_has_the_same_start_and_a_boot_has_an_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    exact = [clock.process_start_ns(pid) for pid in ("self", os.getppid())]
    monkeypatch.setattr(clock, "_PROC", tmp_path)
    monkeypatch.delattr(clock.time, "CLOCK_BOOTTIME")
    portable = [clock.process_start_ns(pid) for pid in ("self", os.getppid())]
    assert portable == pytest.approx(exact, abs=2_000_000_000)  # the wall clock may have been set
    assert clock.boot_id() == clock.boot_id() != ""
    assert clock.anchor().keys() == {"t", "wall", "boot"}
