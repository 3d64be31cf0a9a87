"""Compilation has its own account and its own records; a shape that changes is seen as a recompilation."""

from pathlib import Path
from typing import Any

import pytest

from argosy.journal.phys import PHYS
from tiny_runs import SMALL, make_run, records, train


@pytest.mark.dist
def test_compilation_is_booked_and_recorded(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, "model.layers=1", "layout.compile=true")
    train(run_ranks, run, 1)
    compilations = records(run, 1, "compile")
    assert compilations, "the first step compiles"
    first, *later = [dict(zip(PHYS, step["a"], strict=False)) for step in records(run, 1, "step")]
    assert first["compile"] > first["forward"], "seconds of compiling are no forward pass"
    end_of_first = records(run, 1, "step")[0]["t1"]
    for step, account in zip(records(run, 1, "step")[1:], later, strict=True):
        recompiled = [c for c in compilations if step["t0"] < c["t"] <= step["t1"]]
        assert bool(recompiled) == bool(account.get("compile")), "no compilation without a record"
    assert any(c["t"] <= end_of_first for c in compilations)
