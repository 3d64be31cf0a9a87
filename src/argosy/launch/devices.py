"""How many processes to start, and on what, without importing torch."""

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from argosy.errors import InputError, UsageError
from argosy.hardware.machine import this_machine


@dataclass(frozen=True)
class Slots:
    """Devices of this host that a run takes: GPUs, or CPU slots (one for each rank)."""

    kind: Literal["cpu", "cuda"]
    count: int

    @property
    def names(self) -> list[str]:
        """``cpu:0``, ``cpu:1``, … as the journal and the paid set name them."""
        return [f"{self.kind}:{index}" for index in range(self.count)]

    @property
    def threads_each(self) -> int:
        """OpenMP threads of one rank. The library's own default, all cores for each rank, makes a step many times
        slower as soon as two ranks share the cores."""
        return max(1, this_machine().cores // self.count)


def resolve_slots(device: Literal["auto", "cpu", "cuda"], nproc: int | None) -> Slots:
    """What a run with the recipe's `run.device` and the user's `nproc` takes here: all GPUs, else one CPU slot.

    Raises InputError when GPUs are asked for and none can be used, UsageError when there are fewer than `nproc`.
    """
    if nproc is not None and nproc < 1:
        raise UsageError(f"{nproc} processes cannot train", where="--nproc", do="give 1 or more")
    gpus = 0 if device == "cpu" else usable_gpus()
    if device == "cuda" and gpus == 0:
        raise InputError(
            "there is no GPU that this torch can use",
            where="run.device",
            do="install a CUDA build of torch on a machine with GPUs, or --set run.device=cpu",
        )
    if gpus == 0:
        return Slots("cpu", nproc or 1)
    if nproc is not None and nproc > gpus:
        raise UsageError(f"{nproc} processes, but {gpus} GPUs", where="--nproc", do=f"give at most {gpus}")
    return Slots("cuda", nproc or gpus)


def usable_gpus() -> int:
    """GPUs that the driver shows, `CUDA_VISIBLE_DEVICES` allows and the installed torch was built for."""
    if not _torch_built_for_gpus():
        return 0
    present = this_machine().accelerators
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return present if visible is None else min(present, len([name for name in visible.split(",") if name.strip()]))


def _torch_built_for_gpus() -> bool:
    """Read from torch's version file, since importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    version = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    return re.search(r"^(cuda|hip)\b.*=\s*['\"]", version, re.MULTILINE) is not None
