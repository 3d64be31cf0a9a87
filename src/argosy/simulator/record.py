"""What happened in a simulated job: totals always, and on demand every attempt, block of steps, save and decision."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from argosy.policy.action import Action
from argosy.policy.event import Event
from argosy.policy.view import Tier


@dataclass(frozen=True)
class Block:
    """Steps between two saves, all alike."""

    t0_s: float
    t1_s: float
    first: int
    count: int
    slow_s: float
    """Of the block, waiting for a slow machine."""
    eval_s: float
    away: int
    """Replica groups that were away."""


@dataclass(frozen=True)
class SaveMade:
    t0_s: float
    t1_s: float
    """When training went on."""
    step: int
    tier: Tier
    durable_s: float


@dataclass(frozen=True)
class Span:
    """Something other than steps that ranks did; `groups` are those that did it, None: all at work."""

    phase: str
    t0_s: float
    t1_s: float
    away_group: int | None = None


@dataclass
class Attempt:
    """One start of the job's processes."""

    start_s: float
    world: int
    spans: list[Span] = field(default_factory=list)
    restored: tuple[int, Tier, str] | None = None
    """(step, tier, why)"""
    restored_s: float = 0.0
    blocks: list[Block] = field(default_factory=list)
    saves: list[SaveMade] = field(default_factory=list)
    aborted: list[Block] = field(default_factory=list)
    """Steps that the loss of a replica group broke off."""
    alive_s: float = 0.0
    """Last sign of life of its ranks."""
    end_s: float = 0.0
    """When somebody knew that it had ended."""
    exit_code: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Decided:
    """An event and what the policies answered."""

    t_s: float
    step: int
    what: str
    event: Event
    action: Action


@dataclass
class Record:
    """Everything that a course leaves behind."""

    detailed: bool = False
    spent_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Account → device-seconds of what was no step."""
    faults: Counter[str] = field(default_factory=Counter)
    """Name of a fault → how often it stopped or slowed the job."""
    actions: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    saves: Counter[Tier] = field(default_factory=Counter)
    lost_steps: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    decisions: list[Decided] = field(default_factory=list)
    paid: list[tuple[float, int]] = field(default_factory=list)
    """(from when, devices that are paid)"""
    notes: Counter[str] = field(default_factory=Counter)
