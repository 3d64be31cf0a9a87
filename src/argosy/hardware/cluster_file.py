"""The cluster that a user means: a TOML file, words like ``64xH100``, or this machine."""

import re
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

from argosy.errors import InputError, UsageError
from argosy.hardware.cluster import Cluster, Price
from argosy.hardware.local import local_cluster
from argosy.hardware.parts import GIB, Part, part

NETWORKS = ("fabric", "cloud")
"""Kinds of network between nodes: a lossless fabric (InfiniBand, RoCE), or a cloud's Ethernet."""
_KEYS = {"accelerator", "count", "per_node", "network", "nic_gbit_s", "link_gb_s", "domain", "storage_gb_s",
         "failures_per_day", "restart_s", "price", "measured", "part"}  # fmt: skip
_PART_KEYS = {"name", "peak_tflops", "memory_gib", "memory_gb_s", "processors", "link_gb_s", "nic_gbit_s", "domain",
              "per_node", "sustained_share"}  # fmt: skip


def load_cluster(text: str) -> Cluster:
    """The cluster that `text` means: a path of a TOML file, ``COUNTxPART``, or ``local:RANKS`` on this machine.

    Raises UsageError for what cannot be understood, InputError for a file that cannot be read.
    """
    if match := re.fullmatch(r"\s*(\d+)\s*[x×*]\s*([\w.+-]+)\s*", text):
        return _of_part(part(match[2]), int(match[1]))
    if match := re.fullmatch(r"local(?::(\d+))?", text.strip()):
        return local_cluster(int(match[1] or 1))
    path = Path(text)
    if path.suffix != ".toml" and not path.exists():
        raise UsageError(
            f"{text!r} is neither COUNTxPART nor a cluster file", do="write 64xH100, local:2, or a path of a .toml file"
        )
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", where=str(path)) from error
    return parse_cluster(content, str(path))


def parse_cluster(content: dict[str, Any], where: str = "cluster") -> Cluster:
    """The cluster that a cluster file says. Raises UsageError that names the wrong key."""
    if unknown := sorted(content.keys() - _KEYS):
        raise UsageError(f"unknown keys {', '.join(unknown)}", where=where, do=f"known: {', '.join(sorted(_KEYS))}")
    count = content.get("count")
    if not isinstance(count, int) or count < 1:
        raise UsageError(f"count must be a whole number above 0, not {count!r}", where=where)
    chip = _described(content["part"], where) if "part" in content else part(str(content.get("accelerator", "")))
    base = _of_part(chip, count)
    network = content.get("network", "fabric")
    if network not in NETWORKS:
        raise UsageError(f"network {network!r} is unknown", where=where, do=f"use one of {', '.join(NETWORKS)}")

    def positive(key: str, default: float, unit: float = 1.0) -> float:
        value = content.get(key)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise UsageError(f"{key} must be a number above 0, not {value!r}", where=where)
        return float(value) * unit

    return Cluster(
        name=Path(where).stem if where.endswith(".toml") else base.name,
        part=chip,
        count=count,
        per_node=int(positive("per_node", base.per_node)),
        domain=int(positive("domain", base.domain)),
        link_bytes_per_s=positive("link_gb_s", base.link_bytes_per_s, 1e9),
        nic_bytes_per_s=positive("nic_gbit_s", base.nic_bytes_per_s, 1e9 / 8),
        network=network,
        storage_bytes_per_s=positive("storage_gb_s", base.storage_bytes_per_s, 1e9),
        failures_per_day=positive("failures_per_day", base.failures_per_day),
        restart_s=positive("restart_s", base.restart_s),
        price=_price(content["price"], where) if "price" in content else base.price,
        measured={str(k): float(v) for k, v in content.get("measured", {}).items()},
    )


def _of_part(chip: Part, count: int) -> Cluster:
    if count < 1:
        raise UsageError("a cluster needs at least 1 accelerator")
    price = None
    if chip.price_usd_per_h:
        low, high = (Fraction(str(p)) for p in chip.price_usd_per_h)
        # Rates differ by more than any layout gains; the middle is a start, and its source is printed
        price = Price((low + high) / 2, "USD", chip.date, chip.price_source)
    return Cluster(
        name=f"{count}x{chip.id}",
        part=chip,
        count=count,
        per_node=min(chip.per_node, count),
        domain=min(chip.domain, count),
        link_bytes_per_s=chip.link_bytes_per_s,
        nic_bytes_per_s=chip.nic_bytes_per_s,
        price=price,
    )


def _price(table: Any, where: str) -> Price:
    try:
        spot = table.get("spot")
        return Price(
            amount=Fraction(str(table["amount"])),
            currency=table.get("currency", "USD"),
            date=str(table.get("date", "")),
            source=table.get("source", where),
            spot=None if spot is None else Fraction(str(spot)),
            spot_interruptions_per_day=float(table.get("spot_interruptions_per_day", 1.0)),
        )
    except (KeyError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise UsageError(f"price is not understood ({error})", where=where, do='price = { amount = "2.49" }') from error


def _described(table: Any, where: str) -> Part:
    """A part that the catalogue does not know."""
    needed = ("peak_tflops", "memory_gib", "memory_gb_s")
    if not isinstance(table, dict) or (lost := [key for key in needed if key not in table]):
        raise UsageError(f"[part] lacks {', '.join(lost) if isinstance(table, dict) else 'its table'}", where=where)
    if unknown := sorted(table.keys() - _PART_KEYS):
        raise UsageError(f"[part] has unknown keys {', '.join(unknown)}", where=where)
    return Part(
        id=table.get("name", "custom"),
        aliases=(),
        die="custom",
        peak_flops_per_s={dtype: tera * 1e12 for dtype, tera in table["peak_tflops"].items()},
        matmul_flops_per_s={},
        sustained_share=table.get("sustained_share", 0.76),
        memory_bytes=round(table["memory_gib"] * GIB),
        memory_bytes_per_s=table["memory_gb_s"] * 1e9,
        processors=table.get("processors", 128),
        link_bytes_per_s=table.get("link_gb_s", 25) * 1e9,
        domain=table.get("domain", 8),
        per_node=table.get("per_node", 8),
        nic_bytes_per_s=table.get("nic_gbit_s", 100) * 1e9 / 8,
        price_usd_per_h=None,
        price_source="",
        source=where,
        date="",
    )
