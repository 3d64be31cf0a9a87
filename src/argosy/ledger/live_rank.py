"""Running sums of one rank's journal while it is written: the small sister of the exact books.

It needs no intervals, since times of a recorder are self times: a step's array, what it leaves of
the window, and placed spans, each added to its account as it arrives.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argosy.journal.schema import LOST_BY_FAILURE
from argosy.ledger.accounts import account
from argosy.ledger.tail import Tail

RESIDUAL = "unattributed.residual"
MATH_ACCOUNT = account("forward", "kept")


class LiveRank:
    """One rank of the attempt under way."""

    def __init__(self, path: Path):
        self.header: dict[str, Any] | None = None
        self.kept_ns: Counter[str] = Counter()
        """Time by account, without what is at risk."""
        self.at_risk_ns: Counter[str] = Counter()
        """Time by account of the visits that no durable checkpoint holds, as if kept."""
        self.steps: list[dict[str, Any]] = []
        """Step records of the last look, with ``own_ns``: the window without placed spans in it."""
        self.other: list[dict[str, Any]] = []
        """Other records of the last look."""
        self._tail = Tail(path)
        self._at_risk: list[tuple[int, Counter[str]]] = []
        self._open: dict[int, str] = {}
        self._placed_ns: defaultdict[int, int] = defaultdict(int)  # closed spans by depth, inside what is open

    @property
    def phase(self) -> str | None:
        """The innermost open span, or None while stepping."""
        return next(reversed(self._open.values()), None)

    def look(self) -> None:
        """Take in what was written since the last look."""
        self.steps, self.other = [], []
        for record in self._tail.records():
            kind = record.get("k")
            if kind == "header":
                self.header = record
            elif self.header is None:
                continue
            elif kind == "step":
                self._step(record)
            elif kind == "span":
                self._span(record)
            else:
                if kind == "restore":  # in its place among the steps, else it would undo the ones after it
                    self._restore(record["to"], record["why"])
                self.other.append(record)

    def commit(self, updates: int) -> None:
        """A durable checkpoint holds `updates` updates: the steps below are kept."""
        for times in self._no_longer_at_risk(lambda step: step < updates):
            self.kept_ns.update(times)

    def _step(self, record: dict[str, Any]) -> None:
        own_ns = record["t1"] - record["t0"] - self._placed_ns.pop(0, 0)
        times = self._named(record.get("a", ()))
        off, queued = record.get("u") or (0, 0)  # math without a processor is no math
        off = min(off, times[MATH_ACCOUNT])
        times.update({MATH_ACCOUNT: -off, "compute.contention": min(queued, off)})
        times["compute.launch_gap"] += off - min(queued, off)
        times[RESIDUAL] += own_ns - sum(times.values())
        if record.get("x"):
            self.kept_ns[account("forward", "skipped")] += own_ns
        else:
            self._at_risk.append((record["s"], times))
            self.at_risk_ns.update(times)
        self.steps.append(record | {"own_ns": own_ns})

    def _restore(self, updates: int, why: str) -> None:
        fate = "lost_failure" if why in LOST_BY_FAILURE else "discarded_decision"
        lost = self._no_longer_at_risk(lambda step: step >= updates)
        self.kept_ns[account("forward", fate)] += sum(times.total() for times in lost)

    def _no_longer_at_risk(self, settled: Callable[[int], bool]) -> list[Counter[str]]:
        """Take out the visits whose steps are `settled`; their times by account."""
        taken = [times for step, times in self._at_risk if settled(step)]
        self._at_risk = [(step, times) for step, times in self._at_risk if not settled(step)]
        for times in taken:
            self.at_risk_ns.subtract(times)
        return taken

    def _span(self, record: dict[str, Any]) -> None:
        name, depth = record["p"], record.get("d", 0)
        if record["t1"] is None:
            self._open[record["id"]] = name
            return
        self._open.pop(record["id"], None)
        whole_ns = record["t1"] - record["t0"]
        times = self._named(record.get("a", ()))
        times[account(name, "none")] += whole_ns - sum(times.values()) - self._placed_ns.pop(depth + 1, 0)
        self.kept_ns.update(times)
        if not name.startswith("startup."):  # the first window begins after start-up
            self._placed_ns[depth] += whole_ns

    def _named(self, amounts: list[int]) -> Counter[str]:
        assert self.header is not None
        times: Counter[str] = Counter()
        for name, ns in zip(self.header["phys"], amounts, strict=False):
            times[account(name, "kept")] += ns
        return times
