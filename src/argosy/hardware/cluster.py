"""A cluster as a value: how many of which part, on which links, at what price."""

from dataclasses import dataclass, field
from fractions import Fraction

from argosy.hardware.parts import Part


@dataclass(frozen=True)
class Price:
    """What one accelerator costs per hour, exactly; `date` is when that was true."""

    amount: Fraction
    currency: str = "USD"
    date: str = ""
    source: str = ""
    spot: Fraction | None = None
    """Price while the provider may take the machine back."""
    spot_interruptions_per_day: float = 1.0
    """How often it does, for the whole cluster."""


@dataclass(frozen=True)
class Cluster:
    """Accelerators and what joins them. Rates are of one accelerator, one direction."""

    name: str
    part: Part
    count: int
    per_node: int
    domain: int
    link_bytes_per_s: float
    nic_bytes_per_s: float
    network: str = "fabric"
    storage_bytes_per_s: float = 25e9
    """Of all writers together, for checkpoints."""
    failures_per_day: float = 0.0005
    """Of one accelerator with its share of the node; Llama 3 405B had 419 unplanned stops in 54 days on 16,384."""
    restart_s: float = 300.0
    price: Price | None = None
    measured: dict[str, float] = field(default_factory=dict)
    """Calibration: measured ÷ predicted rate by kernel class or link (``gemm``, ``memory``, ``link``, ``nic``)."""

    @property
    def nodes(self) -> int:
        return -(-self.count // self.per_node)

    def resized(self, count: int) -> "Cluster":
        """The same with another number of accelerators."""
        return Cluster(**{**self.__dict__, "count": count, "name": f"{count}x{self.part.id}"})
