"""How many processes on what, decided without torch."""

import os

import pytest

from argosy.errors import InputError, UsageError
from argosy.launch import devices
from argosy.launch.devices import Slots, resolve_slots


@pytest.fixture
def gpus(monkeypatch):
    """Makes the machine show `n` GPUs that torch can use."""

    def show(n: int) -> None:
        monkeypatch.setattr(devices, "usable_gpus", lambda: n)

    return show


def test_all_gpus_by_default(gpus):
    gpus(4)
    assert resolve_slots("auto", None) == Slots("cuda", 4)
    assert resolve_slots("auto", 2) == Slots("cuda", 2)
    assert resolve_slots("cpu", None) == Slots("cpu", 1)
    assert resolve_slots("cpu", 3) == Slots("cpu", 3)


def test_one_cpu_slot_where_there_is_no_gpu(gpus):
    gpus(0)
    assert resolve_slots("auto", None) == Slots("cpu", 1)
    assert resolve_slots("auto", 2).names == ["cpu:0", "cpu:1"]
    with pytest.raises(InputError, match=r"--set run.device=cpu"):
        resolve_slots("cuda", None)


def test_more_processes_than_gpus_is_refused_with_the_most(gpus):
    gpus(2)
    with pytest.raises(UsageError, match="at most 2"):
        resolve_slots("auto", 3)
    with pytest.raises(UsageError, match="1 or more"):
        resolve_slots("cpu", 0)


def test_ranks_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert [Slots("cpu", n).threads_each for n in (1, 2, 3, 8, 16)] == [8, 4, 2, 1, 1]


@pytest.mark.parametrize(("cuda", "hip", "usable"), [("'12.8'", "None", 4), ("None", "None", 0), ("None", "'6.4'", 4)])
def test_gpus_count_only_for_a_torch_built_for_them(monkeypatch, tmp_path, cuda, hip, usable):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text(f"cuda: Optional[str] = {cuda}\nhip: Optional[str] = {hip}\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: _spec(tmp_path / "torch" / "__init__.py"))
    monkeypatch.setattr(devices, "this_machine", lambda: _machine(4))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices.usable_gpus() == usable
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert devices.usable_gpus() == min(usable, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert devices.usable_gpus() == 0


def _spec(origin):
    from importlib.machinery import ModuleSpec

    return ModuleSpec("torch", None, origin=str(origin))


def _machine(gpus: int):
    from argosy.hardware.machine import Machine

    return Machine(cpu="a CPU", cores=8, accelerator="a GPU", accelerators=gpus)
