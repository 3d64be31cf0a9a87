"""Parts as the planner sees them: memory, links, network cards, prices (``parts.toml``) beside the peaks.

The peaks stay in ``accelerators.toml``, whose names are compared exactly because a report must not guess.
A plan names a part by hand, so here short aliases (``H100``) are accepted and a wrong name gets suggestions.
"""

import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from argosy.errors import UsageError
from argosy.hardware.catalogue import catalogue

GIB = 2**30


@dataclass(frozen=True)
class Part:
    """An accelerator with the links that usually come with it."""

    id: str
    aliases: tuple[str, ...]
    die: str
    """Parts of one die share the cost model's constants."""
    peak_flops_per_s: dict[str, float]
    """Dense peak by dtype."""
    matmul_flops_per_s: dict[str, float]
    """Best measured rate of a large matrix product by dtype, where somebody published one."""
    sustained_share: float
    """Share of peak that large products keep up back to back; see ``parts.toml``."""
    memory_bytes: int
    memory_bytes_per_s: float
    processors: int
    """Streaming multiprocessors or compute units: tiles of a product run on them in waves."""
    link_bytes_per_s: float
    """Scale-up link (NVLink, xGMI, PCIe) of one accelerator, one direction."""
    domain: int
    """Accelerators that the scale-up link joins."""
    per_node: int
    nic_bytes_per_s: float
    """Network card of one accelerator, one direction."""
    price_usd_per_h: tuple[float, float] | None
    """Lowest and highest published hourly rate."""
    price_source: str
    source: str
    date: str


TYPICAL_SHARE = 0.76
"""Sustained ÷ dense peak where nobody published either: 0.95 of a best product at 0.8 of peak."""


@cache
def parts() -> tuple[Part, ...]:
    """All parts of the catalogue."""
    table = tomllib.loads(resources.files("argosy.hardware").joinpath("parts.toml").read_text("utf-8"))
    peaks = {accelerator.id: accelerator.peak_flops_per_s for accelerator in catalogue()}
    return tuple(
        Part(
            id=row["id"],
            aliases=tuple(row["aliases"]),
            die=row["die"],
            peak_flops_per_s=peaks[row["id"]],
            matmul_flops_per_s=_tera(row.get("matmul_tflops", {})),
            sustained_share=row.get("sustained_share") or _sustained(peaks[row["id"]], row),
            memory_bytes=round(row["memory_gib"] * GIB),
            memory_bytes_per_s=row["memory_gb_s"] * 1e9,
            processors=row["processors"],
            link_bytes_per_s=row["link_gb_s"] * 1e9,
            domain=row["domain"],
            per_node=row["per_node"],
            nic_bytes_per_s=row["nic_gbit_s"] * 1e9 / 8,
            price_usd_per_h=tuple(row["price_usd_per_h"]) if "price_usd_per_h" in row else None,
            price_source=row.get("price_source", ""),
            source=row["source"],
            date=table["date"],
        )
        for row in table["part"]
    )


def part(name: str) -> Part:
    """The part called `name` (id or alias, any case).

    Raises UsageError with the nearest names and how to add a part.
    """
    wanted = name.strip().casefold()
    names = {known.casefold(): row for row in parts() for known in (row.id, *row.aliases)}
    if wanted in names:
        return names[wanted]
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.4)
    listed = " or ".join(dict.fromkeys(names[n].aliases[0] if names[n].aliases else names[n].id for n in near))
    raise UsageError(
        f"unknown accelerator {name!r}",
        do=(f"did you mean {listed}? " if near else "")
        + "otherwise describe it in a cluster file: [part] peak_tflops, memory_gib, memory_gb_s, link_gb_s, nic_gbit_s",
    )


def _sustained(peak: dict[str, float], row: dict[str, Any]) -> float:
    best = row.get("matmul_tflops", {}).get("bf16")
    return 0.95 * best * 1e12 / peak["bf16"] if best else TYPICAL_SHARE


def _tera(table: dict[str, float]) -> dict[str, float]:
    return {dtype: tera * 1e12 for dtype, tera in table.items()}
