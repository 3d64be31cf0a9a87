"""A point of a curve over cost."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One point of a curve over cost; `paid_ns` are device-ns of the whole run until then."""

    step: int
    tokens: int
    paid_ns: int
    money: str | None
    loss: float | None
    """Nats per token."""
    bits_per_byte: float | None = None
    full: bool = True
    """Whether all held-out data were used."""
