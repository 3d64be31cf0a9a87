"""What can be measured: shape, precision, who takes part, and which ratios are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One contestant."""

    script: str
    """In bench/contest/."""
    peer: str | None = None
    """Whose environment it runs in; None: Argosy's own."""
    arguments: tuple[str, ...] = ()
    layout: Mapping[str, Any] | None = None
    """Of a run of Argosy: the recipe's [layout], {} for what it says by default."""


@dataclass(frozen=True)
class Asked:
    """A ratio of tokens per second: `ours` ÷ `theirs`."""

    ours: str
    theirs: str
    at_least: float | None
    """None: printed only."""


@dataclass(frozen=True)
class Configuration:
    """One contest."""

    shape: str
    precision: str
    entries: Mapping[str, Entry]
    asked: tuple[Asked, ...]
    loss_tolerance: float
    """Largest relative difference of two contestants' losses over the first steps that rounding explains."""


_EAGER = Entry("argosy_run.py", layout={})
_SINGLE = {
    "argosy": _EAGER,
    "argosy compiled": Entry("argosy_run.py", layout={"compile": True}),
    "plain": Entry("plain.py"),
    "transformers": Entry("hf_trainer.py", "transformers"),
    "transformers compiled": Entry("hf_trainer.py", "transformers", ("--compile",)),
}
_SHARDED = {
    "argosy": _EAGER,
    "argosy fsdp": Entry("argosy_run.py", layout={"fsdp": 2}),
    "olmo-core": Entry("olmo_trainer.py", "olmo-core"),
}
_TOLERANCE = {"fp32": 1e-4, "bf16": 5e-3}


def _single(shape: str, precision: str, eager: float, compiled: float) -> Configuration:
    asked = (
        Asked("argosy", "plain", 0.97),
        Asked("argosy", "transformers", eager),
        Asked("argosy compiled", "transformers", compiled),
        Asked("argosy compiled", "transformers compiled", None),
    )
    return Configuration(shape, precision, MappingProxyType(_SINGLE), asked, _TOLERANCE[precision])


def _sharded(shape: str, at_least: float) -> Configuration:
    asked = (Asked("argosy", "olmo-core", at_least), Asked("argosy fsdp", "olmo-core", 1.0))
    return Configuration(shape, "fp32", MappingProxyType(_SHARDED), asked, _TOLERANCE["fp32"])


CONFIGURATIONS = {
    "3m-fp32": _single("3m", "fp32", 1.0, 1.08),
    "3m-bf16": _single("3m", "bf16", 1.05, 1.2),
    "25m-fp32": _single("25m", "fp32", 1.0, 1.08),
    "25m-bf16": _single("25m", "bf16", 1.05, 1.2),
    "fsdp-d256": _sharded("d256", 1.0),
    "fsdp-d128": _sharded("d128", 1.2),
}
