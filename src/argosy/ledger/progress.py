"""How a run goes right now: follows the journal of one attempt and says it in one line.

The books (:func:`argosy.ledger.books.keep_books`) are exact and read everything; this is cheap and reads
only what was added. Earlier attempts come from the books, once; of the present attempt the same table
of accounts is summed up as records arrive. Of ranks on other machines, which a launcher does not
follow, the ranks that it sees stand for all: shares are of the time seen.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from argosy.journal.reader import read_rows
from argosy.ledger.before import Before, books_before
from argosy.ledger.cells import amount
from argosy.ledger.live_rank import LiveRank
from argosy.ledger.money import ANY_DEVICE, PriceList, cost, money_text
from argosy.ledger.tail import Tail
from argosy.ledger.utilisation import KnownPeak, flops_per_token, known_peak, utilisation
from argosy.registry.run_folder import RunFolder

RECENT_STEPS = 50


@dataclass(frozen=True)
class ProgressState:
    """What the line says. Unknown is None."""

    step: int
    """Updates done."""
    total_steps: int
    phase: str | None
    """What rank 0 is in when it is not stepping: a start-up phase, ``eval``, ``ckpt_block``."""
    loss: float | None
    tokens_per_s: float | None
    mfu: float | None
    useful_share: float | None
    at_risk_share: float | None
    """Part of `useful_share` that no durable checkpoint holds."""
    paid_ns: int
    money: str | None
    currency: str | None
    leak: str | None
    """Account of the biggest leak."""
    leak_share: float | None
    eta_s: float | None
    at_risk_money: str | None = None
    """What that part has cost: it would be paid again."""


class Progress:
    """Follows attempt `attempt` of the run in `run_path`; `clock` is the monotonic one, or a test's."""

    def __init__(self, run_path: Path, attempt: int, *, clock: Callable[[], int] = time.monotonic_ns):
        run = RunFolder(run_path)
        recipe = run.recipe()
        self._run, self._attempt, self._clock = run, attempt, clock
        self._total_steps = recipe.total_steps
        self._dtype = recipe.precision.compute
        self._flops_per_token = flops_per_token(recipe)
        self._prices = PriceList.from_records(read_rows(run.price_file))
        self._ranks: dict[int, LiveRank] = {}
        self._recent: deque[tuple[int, int, int, int]] = deque(maxlen=RECENT_STEPS)  # t0, t1, own ns, tokens
        self._step = 0
        self._loss: float | None = None
        self._peak: KnownPeak | None = None
        self._start: dict[str, Any] | None = None
        self._before = Before() if attempt == 1 else books_before(run_path, attempt)

    def poll(self) -> ProgressState:
        """Take in what was written since the last call, and say how it stands now."""
        self._find_ranks()
        for rank in self._ranks.values():
            rank.look()
        for rank in self._ranks.values():
            for record in rank.other:
                self._event(record)
        if lead := self._ranks.get(0):
            self._steps(lead)
        return self._state()

    def _find_ranks(self) -> None:
        """Files of ranks on this host: those of others may be thousands, and on slow storage."""
        world = self._start["world"] if self._start else None
        if self._start is None:
            for file in sorted(self._run.attempt_folder(self._attempt).glob("agent-*.jsonl")):
                self._start = next((r for r in Tail(file).records() if r.get("k") == "header"), None)
        if world is not None and len(self._ranks) == world:
            return
        for file in self._run.attempt_folder(self._attempt).glob("rank-*.jsonl"):
            number = int(file.stem.removeprefix("rank-"))
            if number not in self._ranks:
                self._ranks[number] = LiveRank(file)

    def _event(self, record: dict[str, Any]) -> None:
        kind = record.get("k")
        if kind == "ckpt" and record.get("ph") == "committed" and record.get("tier") == "storage":
            for rank in self._ranks.values():
                rank.commit(record["s"])
        elif kind == "restore":
            self._step = record["to"]
        elif kind == "peak":
            self._peak = known_peak([record], self._dtype) or self._peak

    def _steps(self, lead: LiveRank) -> None:
        """Step, loss and speed are the same on all ranks."""
        for record in lead.steps:
            self._step = record["s"] + 1
            self._loss = record["l"] if record.get("l") is not None else self._loss
            self._recent.append((record["t0"], record["t1"], record["own_ns"], sum(record["n"])))

    def _state(self) -> ProgressState:
        start, lead = self._start, self._ranks.get(0)
        paid_ns, nanos = self._cost()
        kept, at_risk = Counter[str](), Counter[str]()
        for rank in self._ranks.values():
            kept.update(rank.kept_ns)
            at_risk.update(rank.at_risk_ns)
        for_all = start["world"] / len(self._ranks) if start and self._ranks else 1.0
        shares = {
            name: (self._before.accounts.get(name, 0) + for_all * (kept[name] + at_risk[name])) / paid_ns
            for name in {*self._before.accounts, *kept, *at_risk}
            if paid_ns
        }
        leak = max((n for n in shares if not n.startswith("useful.")), key=lambda n: (shares[n], n), default=None)
        speed = self._tokens_per_s()
        use = utilisation(speed, self._flops_per_token, start["world"] if start else None, self._peak)
        left = max(0, self._total_steps - self._step)
        at_risk_share = for_all * _useful(at_risk) / paid_ns if shares else None
        return ProgressState(
            step=self._step,
            total_steps=self._total_steps,
            phase=lead.phase if lead else "start",
            loss=self._loss,
            tokens_per_s=speed,
            mfu=use.mfu,
            useful_share=_useful(shares) if shares else None,
            at_risk_share=at_risk_share,
            at_risk_money=money_text(round(nanos * at_risk_share)) if nanos and at_risk_share else None,
            paid_ns=paid_ns,
            money=money_text(nanos),
            currency=self._prices.currency,
            leak=leak,
            leak_share=shares[leak] if leak else None,
            eta_s=left * (self._recent[-1][1] - self._recent[0][0]) / len(self._recent) / 1e9 if self._recent else None,
        )

    def _cost(self) -> tuple[int, int | None]:
        """Device-ns and nanos paid until now."""
        if self._start is None:
            return self._before.paid_ns, self._before.nanos
        start = self._start
        begin_ns, now_ns = start["proc_start"], self._clock()
        devices = Counter(rank.header["device"] for rank in self._ranks.values() if rank.header)
        devices[ANY_DEVICE] = start["world"] - devices.total()
        usage: dict[Fraction | None, int] = {}
        to_wall = start["wall"] - start["t"]
        for device, count in devices.items():
            for price, ns in self._prices.split(device, begin_ns + to_wall, now_ns + to_wall).items():
                usage[price] = usage.get(price, 0) + count * ns
        _, nanos = cost({"now": usage})
        known = nanos is not None and self._before.nanos is not None
        return (
            self._before.paid_ns + start["world"] * (now_ns - begin_ns),
            self._before.nanos + nanos if known else None,  # type: ignore[operator]
        )

    def _tokens_per_s(self) -> float | None:
        own_ns = sum(own for _, _, own, _ in self._recent)
        return sum(tokens for *_, tokens in self._recent) * 1e9 / own_ns if own_ns else None


def _useful(parts: Mapping[str, float]) -> float:
    return sum(part for name, part in parts.items() if name.startswith("useful."))


def format_line(state: ProgressState, width: int) -> str:
    """`state` in at most `width` characters; what matters least is left out first."""
    pieces: list[tuple[int, str]] = [(0, f"step {state.step:,}/{state.total_steps:,}")]  # (how dispensable, text)
    if state.phase:
        pieces.append((1, state.phase))
    if state.loss is not None:
        pieces.append((2, f"loss {state.loss:.3f}"))
    if state.tokens_per_s is not None:
        pieces.append((3, f"{state.tokens_per_s:,.0f} tok/s"))
    if state.mfu is not None:
        pieces.append((6, f"MFU {state.mfu:.0%}"))
    if state.useful_share is not None:
        price = "" if state.at_risk_money is None else f", {amount(state.at_risk_money)} {state.currency}"
        at_risk = f" ({state.at_risk_share:.0%}{price} at risk)" if state.at_risk_share else ""
        pieces.append((5, f"useful {state.useful_share:.0%}{at_risk}"))
    if state.money is not None and state.currency is not None:
        pieces.append((7, f"{amount(state.money)} {state.currency}"))
    if state.leak is not None and state.leak_share is not None:
        pieces.append((8, f"leak {state.leak} {state.leak_share:.0%}"))
    if state.eta_s is not None:
        pieces.append((4, f"eta {_clock_time(state.eta_s)}"))
    while len(line := "  ".join(text for _, text in pieces)) > width and len(pieces) > 1:
        pieces.remove(max(pieces))
    return line[:width]


def _clock_time(duration_s: float) -> str:
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"
