"""Saves on a file system that kills, tears, fills up and refuses, at every call in turn (`saver.py` under `shim.c`)."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

Sweep = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: faults of the file system cannot be made")
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "shim.c", "-ldl"], check=True)
    return library


@pytest.fixture
def sweep(shim: Path) -> Iterator[Sweep]:
    """`sweep(NAME, BUG)` runs one of saver.py's sweeps. CalledProcessError (with what it said) is a fault found."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:

        def run(name: str, bug: str = "") -> dict[str, Any]:
            command = [sys.executable, HERE / "saver.py", name, folder, shim, bug]
            environment = os.environ | {"LD_PRELOAD": str(shim)}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            return json.loads(done.stdout)

        yield run


@pytest.mark.chaos
def test_a_kill_after_any_call_on_any_rank_leaves_the_old_checkpoints_or_also_the_new_one(sweep: Sweep) -> None:
    left = sweep("kill")
    assert set(map(tuple, left["1"])) == {(2, 1)}, "nothing is there before all ranks have written"
    phases = [tuple(steps) for n, steps in enumerate(left["0"]) if n == 0 or steps != left["0"][n - 1]]
    assert phases == [(2, 1), (3, 2, 1), (3, 2)]
    assert len(left["1"]) >= 6
    assert left["0"].count([2, 1]) >= 20
    assert left["0"].count([3, 2, 1]) >= 15
    assert left["0"].count([3, 2]) >= 5


@pytest.mark.chaos
def test_a_kill_in_the_middle_of_any_write_is_as_harmless(sweep: Sweep) -> None:
    left = sweep("torn")
    assert set(map(tuple, left["1"])) == {(2, 1)}
    assert set(map(tuple, left["0"])) == {(2, 1), (3, 2, 1)}


def test_a_disk_that_is_full_at_any_byte_costs_one_save(sweep: Sweep) -> None:
    found = sweep("full")
    assert found["failed"] >= 50
    assert found["causes"] == ["No space left on device"]


def test_an_error_of_any_call_costs_one_save(sweep: Sweep) -> None:
    found = sweep("eio")
    assert found["failed"] >= 40
    assert "Input/output error" in found["causes"]
    assert all("read back" in cause for cause in found["causes"] if cause != "Input/output error")


def test_a_file_system_that_turns_read_only_costs_one_save(sweep: Sweep) -> None:
    assert "Read-only file system" in sweep("erofs")["causes"]


def test_after_a_failed_flush_nothing_is_committed(sweep: Sweep) -> None:
    found = sweep("fsync")
    assert found["failed"] >= 8
    assert found["causes"] == ["Input/output error"]


def test_what_cannot_be_read_is_named(sweep: Sweep) -> None:
    said = sweep("read")["said"]
    for file in ("manifest.json", ".metadata", "__0_0.distcp", "__1_0.distcp"):
        assert any(file in line and "Input/output error" in line for line in said), said


def in_order(calls: list[list[str]]) -> None:
    """What is written is flushed before it gets its name, and so is the name."""
    renames = [n for n, (what, path) in enumerate(calls) if what == "rename" and path.endswith("/.step-3.g2.tmp")]
    (named,) = renames
    draft = calls[named][1]
    files = {path for what, path in calls[:named] if what == "write" and path.startswith(draft)}
    assert len(files) == 4, "two ranks, .metadata and the manifest"
    for path in files:
        last = max(n for n, call in enumerate(calls[:named]) if call == ["write", path])
        assert ["fsync", path] in calls[last:named], f"{path} has its name before it is on the device"
    last = max(n for n, (what, path) in enumerate(calls[:named]) if what in ("open", "rename") and path != draft)
    assert ["fsync", draft] in calls[last:named], "names in the folder are not on the device"
    assert ["fsync", str(Path(draft).parent)] in calls[named:], "the new name is not on the device"


def test_everything_is_flushed_before_it_gets_its_name(sweep: Sweep) -> None:
    in_order(sweep("calls")["calls"])


def test_a_save_without_flushes_is_noticed(sweep: Sweep) -> None:
    with pytest.raises(AssertionError, match="before it is on the device"):
        in_order(sweep("calls", "no fsync")["calls"])


@pytest.mark.parametrize("bug", ["rename first", "deleted under its name"])
def test_a_planted_mistake_in_the_order_is_noticed(sweep: Sweep, bug: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        sweep("kill", bug)
    assert any(words in caught.value.stderr for words in ("manifest", "damaged")), caught.value.stderr


def test_the_sweep_sees_all_calls_of_a_save(sweep: Sweep) -> None:
    """Or a kill could pass one by: the log has each kind of call that a save is made of."""
    calls = sweep("calls")["calls"]
    assert {what for what, _ in calls} == {
        "mkdir", "open", "fallocate", "write", "fsync", "flock", "rename", "unlink", "rmdir"
    }  # fmt: skip
