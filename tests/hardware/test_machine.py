"""Machine identity and the catalogue of accelerators."""

import subprocess
import sys

import pytest

from argosy.errors import UsageError
from argosy.hardware import machine
from argosy.hardware.catalogue import catalogue, check_precision, find


def test_this_machine_is_named_and_stable():
    here = machine.this_machine()
    assert here == machine.this_machine()
    assert here.cpu
    assert here.cores >= 1
    assert here.cpu in str(here)
    assert (here.accelerator is None) == (here.accelerators == 0)


def test_cpu_name_tells_virtual_machines_apart(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    block = "processor\t: {}\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nstepping\t: 1\n"
    cpuinfo.write_text("\n".join(block.format(n) for n in range(2)))
    assert machine._cpu_name(cpuinfo) == "AMD EPYC (26/2/1)"
    assert machine._cpu_name(tmp_path / "none")


def test_accelerators_are_named_by_their_drivers(tmp_path):
    for n in range(2):
        (tmp_path / f"nvidia/{n}").mkdir(parents=True)
        (tmp_path / f"nvidia/{n}/information").write_text("Model: \t\t NVIDIA H200\nIRQ:   1\n")
    (tmp_path / "drm/card0/device").mkdir(parents=True)
    (tmp_path / "drm/card0/device/product_name").write_text("AMD Instinct MI300X\n")
    assert machine._nvidia_names(tmp_path / "nvidia") == ["NVIDIA H200"] * 2
    assert machine._amd_names(tmp_path / "drm") == ["AMD Instinct MI300X"]
    assert machine._nvidia_names(tmp_path / "absent") == []


@pytest.mark.parametrize(
    ("name", "dtype", "flops"),
    [("NVIDIA H200", "bf16", 989.5e12), ("nvidia a100-sxm4-80gb", "fp32", 19.5e12), ("MI300X", "bf16", 1307e12)],
)
def test_catalogue_knows_data_sheet_peaks(name, dtype, flops):
    assert find(name).peak_flops_per_s[dtype] == pytest.approx(flops, rel=1e-12)


@pytest.mark.parametrize("name", ["NVIDIA H200 NVL", "NVIDIA H100", "cpu", ""])
def test_near_names_are_unknown_parts(name):
    assert find(name) is None


def test_catalogue_has_no_name_twice_and_a_source_each():
    names = [name.casefold() for part in catalogue() for name in {part.id, *part.names}]
    assert len(names) == len(set(names))
    assert all(part.source and part.date and min(part.peak_flops_per_s.values()) > 1e12 for part in catalogue())


def test_nothing_here_imports_torch():
    code = (
        "import sys, argosy.hardware.machine as m, argosy.hardware.catalogue, argosy.hardware.peaks; m.this_machine()"
    )
    subprocess.run([sys.executable, "-c", code + "; sys.exit('torch' in sys.modules)"], check=True)


def test_precision_that_an_accelerator_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="V100-SXM2-32GB has no products in bf16"):
        check_precision("Tesla V100-SXM2-32GB", "bf16")
    check_precision("Tesla V100-SXM2-32GB", "fp32")
    check_precision("NVIDIA A100-SXM4-80GB", "bf16")
    check_precision("an accelerator of tomorrow", "bf16")
    check_precision(None, "bf16")
