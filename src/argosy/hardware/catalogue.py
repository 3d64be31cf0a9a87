"""Data-sheet peaks of known accelerators (``accelerators.toml``); an unknown part has no peak."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from argosy.errors import UsageError


@dataclass(frozen=True)
class Accelerator:
    """One part of the catalogue."""

    id: str
    names: tuple[str, ...]
    peak_flops_per_s: dict[str, float]
    """Dense peak by dtype (``fp32``, ``tf32``, ``fp16``, ``bf16``, ``fp8``, ``fp4``)."""
    source: str
    date: str

    def record(self, dtype: str) -> dict[str, object] | None:
        """Fields of the `peak` record of a run's journal, or None where the data sheet gives no rate for `dtype`."""
        if dtype not in self.peak_flops_per_s:
            return None
        return {
            "dtype": dtype,
            "flops_per_s": self.peak_flops_per_s[dtype],
            "src": f"data sheet of {self.id}",
            "date": self.date,
        }


@cache
def catalogue() -> tuple[Accelerator, ...]:
    """All known accelerators."""
    table = tomllib.loads(resources.files("argosy.hardware").joinpath("accelerators.toml").read_text("utf-8"))
    return tuple(
        Accelerator(
            id=row["id"],
            names=tuple(row["names"]),
            peak_flops_per_s={dtype: tflops * 1e12 for dtype, tflops in row["peak_tflops"].items()},
            source=row["source"],
            date=table["date"],
        )
        for row in table["accelerator"]
    )


def find(name: str) -> Accelerator | None:
    """The accelerator that a driver calls `name`, or None: near names are other parts (H200 and H200 NVL)."""
    wanted = name.strip().casefold()
    return next((a for a in catalogue() if wanted in (n.casefold() for n in (a.id, *a.names))), None)


def check_precision(name: str | None, dtype: str) -> None:
    """Raise UsageError when the accelerator called `name` is known to have no products in `dtype`."""
    known = None if name is None else find(name)
    if known is not None and dtype not in known.peak_flops_per_s:
        raise UsageError(
            f"{known.id} has no products in {dtype}",
            where="precision.compute",
            do=f"use {' or '.join(one for one in ('fp32', 'bf16') if one in known.peak_flops_per_s)}",
        )
