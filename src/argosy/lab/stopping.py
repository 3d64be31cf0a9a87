"""Early stopping, replayed on recorded curves before it is trusted with anybody's runs.

Two runs are compared only at the same fraction of their own schedule: a loss in mid-schedule says little about the end
when learning rates decay differently, and a rule that is blind to this drops winners. A rule is *trusted* when, over
replayed campaigns, the arm that would have won was kept in `KEEP` of them for at most `COST` of the full cost; any
other rule is refused, loudly (users' commonest complaint: stop rules that silently do not fire, or fire wrongly).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from argosy.errors import InputError
from argosy.laws.surfaces import Array, Mask

KEEP, COST = 0.9, 0.5
NEAR = 0.03
"""An evaluation counts for a fraction of the schedule when it lies within this of it."""


@dataclass(frozen=True)
class Recorded:
    """One run of one arm: fractions of its schedule (points,), ascending to 1, and the losses there."""

    arm: str
    fraction: Array
    loss: Array

    def at(self, fraction: float) -> float | None:
        """Loss at a fraction of the schedule, linear between evaluations; None if none is near (never extrapolated)."""
        nearest = np.abs(self.fraction - fraction).min()
        if nearest > NEAR or fraction > self.fraction[-1] + 1e-9 or fraction < self.fraction[0] - NEAR:
            return None
        return float(np.interp(fraction, self.fraction, self.loss))


class Rule(Protocol):
    """Decides from losses at rungs which runs go on."""

    @property
    def name(self) -> str:
        """Short name with its settings."""

    @property
    def rungs(self) -> tuple[float, ...]:
        """Fractions of the schedule at which runs are compared, ascending, the end not included."""

    def play(self, losses: Array) -> tuple[Array, Mask]:
        """From losses (runs, rungs): the fraction up to which each run was trained, and which were kept to the end."""


@dataclass(frozen=True)
class SuccessiveHalving:
    """At each rung keep the best 1/eta of those still running, at least one."""

    eta: float = 2.0
    rungs: tuple[float, ...] = (0.25, 0.5)

    @property
    def name(self) -> str:
        """Short name with its settings."""
        return f"halving 1/{self.eta:g}" + _at(self.rungs)

    def play(self, losses: Array) -> tuple[Array, Mask]:
        """Synchronous: a rung is judged when all its runs have reached it."""
        alive, trained = np.arange(len(losses)), np.ones(len(losses))
        for i, rung in enumerate(self.rungs):
            order = alive[np.argsort(losses[alive, i], kind="stable")]
            keep = max(1, math.ceil(len(order) / self.eta))
            trained[order[keep:]] = rung
            alive = order[:keep]
        return trained, np.isin(np.arange(len(losses)), alive)


@dataclass(frozen=True)
class Asha:
    """Asynchronous halving that pauses: a run waits at a rung and is promoted once it is in the top 1/eta seen there.

    A paused run resumes from its checkpoint, so that nothing is trained twice. `workers` runs are under way at once.
    """

    eta: float = 2.0
    rungs: tuple[float, ...] = (0.25, 0.5)
    workers: int = 4

    @property
    def name(self) -> str:
        """Short name with its settings."""
        return f"ASHA 1/{self.eta:g}, {self.workers} workers" + _at(self.rungs)

    def play(self, losses: Array) -> tuple[Array, Mask]:
        """Event by event; ties of time go to the earlier run, so that a replay is identical."""
        edges = (0.0, *self.rungs, 1.0)
        reached = np.zeros(len(losses), int)  # rungs passed; len(rungs)+1 is the end
        done: list[list[int]] = [[] for _ in self.rungs]
        promoted: list[set[int]] = [set() for _ in self.rungs]
        busy: list[tuple[float, int]] = []
        clock, waiting = 0.0, list(range(len(losses)))
        while True:
            while len(busy) < self.workers:
                chosen = self._promotable(losses, done, promoted)
                if chosen is None:
                    if not waiting:
                        break
                    chosen = waiting.pop(0)
                k = reached[chosen]
                busy.append((clock + edges[k + 1] - edges[k], chosen))
            if not busy:
                break
            clock, run = min(busy)
            busy.remove((clock, run))
            reached[run] += 1
            if reached[run] <= len(self.rungs):
                done[reached[run] - 1].append(run)
        return np.array([edges[k] for k in reached]), reached == len(edges) - 1

    def _promotable(self, losses: Array, done: list[list[int]], promoted: list[set[int]]) -> int | None:
        for i in reversed(range(len(self.rungs))):
            top = sorted(done[i], key=lambda run: (losses[run, i], run))[: int(len(done[i]) / self.eta)]
            ready = [run for run in top if run not in promoted[i]]
            if ready:
                promoted[i].add(ready[0])
                return ready[0]
        return None


@dataclass(frozen=True)
class Margin:
    """Drop a run at a rung only when it is worse than the best there by more than `margin` (loss units).

    The sequential rule: unlike a quota it drops nobody where runs are alike, and says so by saving nothing.
    """

    margin: float
    rungs: tuple[float, ...] = (0.5, 0.75)

    @property
    def name(self) -> str:
        """Short name with its settings."""
        return f"margin {self.margin:g}" + _at(self.rungs)

    def play(self, losses: Array) -> tuple[Array, Mask]:
        """Synchronous."""
        alive, trained = np.ones(len(losses), bool), np.ones(len(losses))
        for i, rung in enumerate(self.rungs):
            dropped = alive & (losses[:, i] > losses[alive, i].min() + self.margin)
            trained[dropped] = rung
            alive &= ~dropped
        return trained, alive


@dataclass(frozen=True)
class Replay:
    """What a rule would have done."""

    rule: str
    campaigns: int
    kept_best: float
    cost_share: float
    rank_correlation: tuple[float, ...]
    """Of losses at each rung with the final ones."""

    @property
    def trusted(self) -> bool:
        """Whether the rule may stop runs."""
        return self.kept_best >= KEEP and self.cost_share <= COST

    @property
    def reason(self) -> str:
        """Why it is trusted or refused."""
        if self.trusted:
            kept = f"kept the winner in {self.kept_best:.1%} of {self.campaigns} campaigns"
            return f"{kept} at {self.cost_share:.0%} of the cost"
        if self.kept_best < KEEP:
            ranks = ", ".join(f"{r:+.2f}" for r in self.rank_correlation)
            return f"refused: dropped the winner in {1 - self.kept_best:.1%} of campaigns (rank correlation {ranks})"
        return f"refused: saves too little, {self.cost_share:.0%} of the full cost"

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "rule": self.rule,
            "trusted": self.trusted,
            "reason": self.reason,
            "campaigns": self.campaigns,
            "kept_best": self.kept_best,
            "cost_share": self.cost_share,
            "rank_correlation": list(self.rank_correlation),
        }


def replay(rule: Rule, runs: Sequence[Recorded], *, arms: int = 8, campaigns: int = 500, seed: int = 0) -> Replay:
    """Draw campaigns of `arms` different arms, one recorded run each, and let the rule choose among them.

    The winner of a campaign is the run that did end lowest. Runs without an evaluation near every rung are left out:
    their loss there is unknown, and a guess would favour one side.
    """
    by_arm: dict[str, list[list[float]]] = {}
    for run in runs:
        row = [loss for rung in (*rule.rungs, 1.0) if (loss := run.at(rung)) is not None]
        if len(row) == len(rule.rungs) + 1:
            by_arm.setdefault(run.arm, []).append(row)
    if len(by_arm) < max(2, arms):
        raise InputError(
            f"{len(by_arm)} arms have evaluations at {', '.join(f'{r:.0%}' for r in (*rule.rungs, 1.0))} of their "
            f"schedule; a campaign needs {arms}",
            do="choose rungs where runs were evaluated, or fewer arms",
        )
    rng = np.random.default_rng(seed)
    names = sorted(by_arm)
    kept, cost, ranks = [], [], []
    for _ in range(campaigns):
        chosen = rng.choice(len(names), arms, replace=False)
        rows = np.array([by_arm[names[i]][rng.integers(len(by_arm[names[i]]))] for i in chosen])
        trained, alive = rule.play(rows[:, :-1])
        kept.append(bool(alive[np.argmin(rows[:, -1])]))
        cost.append(trained.mean())
        ranks.append([_spearman(rows[:, i], rows[:, -1]) for i in range(len(rule.rungs))])
    correlation = tuple(float(r) for r in np.mean(ranks, axis=0))
    return Replay(rule.name, campaigns, float(np.mean(kept)), float(np.mean(cost)), correlation)


def recorded(rows: Mapping[str, tuple[str, Sequence[float], Sequence[float], float]]) -> list[Recorded]:
    """Runs from ``{run: (arm, steps, losses, planned steps)}``; unfinished runs are left out."""
    runs = []
    for arm, steps, losses, planned in rows.values():
        order = np.argsort(steps)
        fraction = np.asarray(steps, float)[order] / planned
        if len(order) and fraction[-1] >= 1 - NEAR and planned > 0:
            runs.append(Recorded(arm, np.minimum(fraction, 1.0), np.asarray(losses, float)[order]))
    return runs


def _at(rungs: Sequence[float]) -> str:
    return " at " + ", ".join(f"{rung:.0%}" for rung in rungs)


def _spearman(a: Array, b: Array) -> float:
    x, y = (np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float) for values in (a, b))
    return float(np.corrcoef(x, y)[0, 1])
