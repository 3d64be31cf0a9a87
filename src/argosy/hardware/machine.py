"""Which kind of machine is this: processor, cores and accelerator, read from the kernel, never through torch.

Two machines with the same :class:`Machine` are taken to be equally fast; a host name is not part of it.
"""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
DRM_CARDS = Path("/sys/class/drm")


@dataclass(frozen=True)
class Machine:
    """Identity of a machine for figures measured on it."""

    cpu: str
    """Model name; with family, model and stepping, since virtual machines show names like 'AMD EPYC' for all."""
    cores: int
    """Logical CPUs that this process may use."""
    accelerator: str | None = None
    """Name as its driver says it, or None where there is none."""
    accelerators: int = 0

    def __str__(self) -> str:
        chips = f" + {self.accelerators} × {self.accelerator}" if self.accelerator else ""
        return f"{self.cores} × {self.cpu}{chips}"


def this_machine() -> Machine:
    """The machine this process runs on."""
    names = _nvidia_names() or _amd_names()
    kinds = sorted(set(names))
    return Machine(
        cpu=_cpu_name(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        accelerator=" and ".join(kinds) or None,
        accelerators=len(names),
    )


def _cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        text = cpuinfo.read_text()
    except OSError:
        return platform.processor() or platform.machine()
    first = dict(re.findall(r"^([\w ]+?)\s*:\s*(.*)$", text.split("\n\n")[0], re.MULTILINE))
    name = first.get("model name") or first.get("CPU part") or platform.machine()
    numbers = [first[key] for key in ("cpu family", "model", "stepping") if key in first]
    return f"{name} ({'/'.join(numbers)})" if numbers else name


def _nvidia_names(root: Path = NVIDIA_GPUS) -> list[str]:
    found = (
        re.search(r"^Model:\s*(.+?)\s*$", file.read_text(), re.MULTILINE) for file in sorted(root.glob("*/information"))
    )
    return [match[1] for match in found if match]


def _amd_names(root: Path = DRM_CARDS) -> list[str]:
    names = (file.read_text().strip() for file in sorted(root.glob("card[0-9]*/device/product_name")))
    return [name for name in names if name]
