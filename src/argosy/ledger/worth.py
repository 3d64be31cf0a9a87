"""What useful time was worth: effective tokens, what a law says was wasted, what the next unit of loss costs.

None of this is in the exact partition. A *valued* account is a share of time that is in other accounts already, under
a law whose name is beside it; changing the law changes no second of the ledger.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from argosy.journal.reader import JournalFile
from argosy.laws.repetition import MUENNIGHOFF, RepetitionLaw
from argosy.ledger.curve_point import Point
from argosy.policy.save import daly_interval_s, daly_wall_s


@dataclass(frozen=True)
class Valued:
    """A leak that only a model can see."""

    account: str
    ns: int | None
    """Device-ns of other accounts that it puts a value on; None: undetermined."""
    why: str
    """The law and its operands, or what is missing."""


@dataclass(frozen=True)
class SourceTokens:
    """One source of the data, over all ranks and attempts."""

    name: str
    tokens: int
    first_seen: int
    effective: float
    """First-seen tokens that would have taught as much."""


@dataclass(frozen=True)
class Worth:
    """Tokens and money of the learning so far. Unknown is None."""

    sources: list[SourceTokens]
    effective_tokens: float | None
    law: str
    loss_per_money: float | None
    """Nats per token that the last unit of money took off, at the present rate."""
    loss_per_device_hour: float | None
    target_loss: float | None
    money_to_target: float | None
    """At the present rate, so at least this much: loss falls ever more slowly."""
    valued: list[Valued]


def source_tokens(files: Iterable[JournalFile], law: RepetitionLaw = MUENNIGHOFF) -> list[SourceTokens]:
    """Tokens by source from the `data` records of all ranks."""
    seen: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file in files:
        for row in file.of_kind("data"):
            tokens, new = row.get("tokens"), row.get("first_seen")
            if type(tokens) is int and type(new) is int:
                cell = seen[str(row.get("src"))]
                cell[0] += tokens
                cell[1] += new
    return [
        SourceTokens(name, tokens, new, law.effective_tokens(tokens, new) if new else 0.0)
        for name, (tokens, new) in sorted(seen.items())
    ]


def repeated_data(sources: Sequence[SourceTokens], useful_ns: int, law: RepetitionLaw = MUENNIGHOFF) -> Valued:
    """Useful time times the share of tokens that repetition made worthless."""
    name = "decision.repeated_data"
    tokens = sum(source.tokens for source in sources)
    if not tokens:
        return Valued(name, None, "undetermined, because no `data` record says what was seen before")
    lost = 1 - sum(source.effective for source in sources) / tokens
    said = f"{law.source.authors} {law.source.year}: {lost:.1%} of {tokens:,} tokens taught nothing new"
    return Valued(name, round(useful_ns * lost), said)


def save_interval(
    saves_ns: Sequence[int], failures: int, paid_ns: int, devices: int, interval_s: float | None
) -> Valued:
    """What saving at another interval than Daly's cost, over the paid time.

    `saves_ns` are lengths of saves, `interval_s` the median time between them.
    """
    name = "decision.ckpt_interval"
    if not saves_ns or interval_s is None:
        return Valued(name, None, "undetermined, because fewer than two saves were made")
    if not failures:
        return Valued(name, None, "undetermined, because nothing failed: no failure rate to weigh saves against")
    wall_s = paid_ns / 1e9 / max(devices, 1)
    cost_s, mtbf_s = float(np.median(saves_ns)) / 1e9, wall_s / failures
    best_s = daly_interval_s(cost_s, mtbf_s)
    actual, best = (daly_wall_s(wall_s, every_s, cost_s, 0.0, mtbf_s) for every_s in (interval_s, best_s))
    said = (
        f"Daly 2006: every {interval_s:,.1f} s where {best_s:,.1f} s were best for saves of {cost_s:,.2f} s "
        f"and {failures} failures in {wall_s:,.0f} s"
    )
    return Valued(name, round(max(0.0, actual - best) * max(devices, 1) * 1e9), said)


def rates(points: Sequence[Point]) -> tuple[float | None, float | None]:
    """Loss taken off per unit of money and per device-hour, over the last third of a curve (least squares)."""
    last = [point for point in points[-max(3, len(points) // 3) :] if point.loss is not None]
    if len(last) < 3:
        return None, None
    loss = np.array([point.loss for point in last])
    hours = np.array([point.paid_ns / 3.6e12 for point in last])
    money = [point.money for point in last]
    per_hour = _slope(hours, loss)
    if any(value is None for value in money):
        return None, per_hour
    return _slope(np.array([float(Fraction(value or 0)) for value in money]), loss), per_hour


def _slope(x: np.ndarray, y: np.ndarray) -> float | None:
    if np.ptp(x) == 0:
        return None
    return -float(np.polyfit(x - x.mean(), y, 1)[0])


def worth(
    sources: list[SourceTokens],
    curve: Sequence[Point],
    target_loss: float | None,
    accounts: Mapping[str, int],
    interval: Valued,
    law: RepetitionLaw = MUENNIGHOFF,
) -> Worth:
    """Put it together; `curve` is training loss against cost."""
    useful_ns = sum(ns for name, ns in accounts.items() if name.startswith("useful."))
    per_money, per_hour = rates(curve)
    losses = [point.loss for point in curve if point.loss is not None]
    left = losses[-1] - target_loss if losses and target_loss is not None else None
    return Worth(
        sources=sources,
        effective_tokens=sum(source.effective for source in sources) if sources else None,
        law=f"{law.source.authors} {law.source.year}, {law.source.where}",
        loss_per_money=per_money,
        loss_per_device_hour=per_hour,
        target_loss=target_loss,
        money_to_target=max(0.0, left) / per_money if left is not None and per_money and per_money > 0 else None,
        valued=[repeated_data(sources, useful_ns, law), interval],
    )
