"""The report as plain data: what `--json` prints, what the renderer draws, nothing else.

Times are integer device-nanoseconds of the partition of paid time, money is a decimal string of
exact nanos, shares are ratios of paid time. Unknown is ``None``, and a ``why`` beside it says why.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from argosy.ledger.causes import Cause
from argosy.ledger.cells import amount, seconds
from argosy.ledger.curve_point import Point
from argosy.ledger.health import Health
from argosy.ledger.memory import MemoryRow
from argosy.ledger.modules import ModuleRow
from argosy.ledger.noise import NoiseScale
from argosy.ledger.pace import PaceOf
from argosy.ledger.pictures import HeatMap, StepPicture
from argosy.ledger.timeline import TimeLine
from argosy.ledger.verdict import Verdict
from argosy.ledger.worth import Worth

SCHEMA = "argosy.report/1"
LAYERS = ("decision", "stability", "comm", "compute", "unattributed", "useful")
"""The waterfall's order: from what was paid down to what was useful."""


@dataclass(frozen=True)
class Line:
    """Time and money of an account, a layer or the whole."""

    ns: int
    share: float
    money: str | None
    imputed_ns: int = 0
    """How much of `ns` was closed from outside instead of measured."""
    estimated_ns: int = 0
    """How much of `ns` was divided by shares of sampled steps or by comparing ranks."""


@dataclass(frozen=True)
class Identity:
    """Which run this is and how it stands."""

    id: str
    name: str
    path: str
    state: str
    """``running``, or how its last attempt ended."""
    devices: int
    """Devices that were ever paid for this run."""
    parameters: int | None = None


@dataclass(frozen=True)
class AttemptRow:
    """One start of the run's processes."""

    attempt: int
    started: str
    """UTC, ISO 8601."""
    world_size: int
    paid_ns: int
    phases: dict[str, int]
    """Device-ns of start-up phases, warm-up, the gap before the attempt and the tail after its last record."""
    visits: int
    """Steps that this attempt executed, lost ones included."""
    lost_visits: int
    skipped_visits: int
    loss_tokens: int
    """Tokens with loss that this attempt computed."""
    step_time_s: float | None
    """Median step window of this attempt."""
    tokens_per_s: float | None
    """All tokens of this attempt's visits ÷ time in their windows; start-up and evaluation are not in it."""
    restored: str | None
    ended: str


@dataclass(frozen=True)
class Work:
    """What became of the steps and tokens."""

    kept_steps: int
    at_risk_steps: int
    lost_visits: int
    skipped_visits: int
    kept_tokens: int
    at_risk_tokens: int
    lost_tokens: int


@dataclass(frozen=True)
class Utilisation:
    """Model FLOPs against the peak, with the operands that anybody can multiply again."""

    mfu: float | None
    hfu: float | None
    why: str | None
    """Why a figure is unknown."""
    tokens_per_s: float | None
    flops_per_token: float | None
    ranks: int | None
    peak_flops_per_s: float | None
    """Of one rank."""
    peak_source: str | None


@dataclass(frozen=True)
class References:
    """Compressors on the same held-out files, in bits per byte."""

    gzip_bits_per_byte: float | None = None
    xz_bits_per_byte: float | None = None
    held_out_bytes: int | None = None


@dataclass(frozen=True)
class Sample:
    """Text that the model wrote."""

    step: int | None
    prompt: str
    text: str


@dataclass(frozen=True)
class Report:
    """Everything that one run's report says."""

    run: Identity
    as_of: str
    verdict: Verdict
    paid_ns: int
    money: str | None
    currency: str | None
    price_note: str
    basis: str
    """Where the denominator comes from, in words."""
    accounts: dict[str, Line]
    layers: dict[str, Line]
    crosstab: dict[str, dict[str, int]]
    """phys → fate → device-ns; both margins sum to `paid_ns`."""
    at_risk_ns: int
    """Useful time that no durable checkpoint holds yet."""
    overlapped_ns: int
    """Memo: time hidden under other spans, in no account."""
    steps: int
    """Steps that the model is made of now: kept and at risk."""
    tokens: int
    """Tokens with loss in those steps."""
    work: Work
    attempts: list[AttemptRow]
    tokens_per_s: float | None
    """Over all attempts: all tokens of their visits ÷ time in their windows."""
    utilisation: Utilisation
    train_curve: list[Point]
    eval_curve: list[Point]
    references: References
    samples: list[Sample]
    timeline: TimeLine
    causes: list[Cause]
    """Who made others wait, doing what; they sum to `comm.wait_slow_rank`."""
    modules: list[ModuleRow]
    """From profiled steps, the slowest first."""
    memory: list[MemoryRow]
    pace: list[PaceOf]
    """Of each attempt that took a step."""
    heat_map: HeatMap | None
    step_picture: StepPicture | None
    health: Health
    noise: list[NoiseScale]
    """Of each attempt whose replicas wrote the norms of their gradients."""
    worth: Worth
    refusals: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What a reader should know of the journal: damaged lines, dropped records."""

    @property
    def value_at_risk(self) -> str:
        """Useful work that no durable checkpoint holds, and what it has cost, in a sentence without its dot."""
        money = self.accounts["useful.provisional"].money if "useful.provisional" in self.accounts else None
        cost = "" if money is None else f" ({amount(money)} {self.currency})"
        return f"{seconds(self.at_risk_ns)} useful device-seconds{cost} are at risk until the next checkpoint"

    def to_json(self) -> dict[str, Any]:
        """The stable keys of `argosy report --json`."""
        return {"schema": SCHEMA} | asdict(self)
