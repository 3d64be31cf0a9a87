"""Value of information: what an experiment is worth before it is run, and which to run under a budget.

For "adopt or not" with a gain θ ~ N(m, t²) and n seeds per arm of noise s, the posterior mean will spread by
q = t²/√(t² + 2s²/n), so that EVSI = q·φ(m/q) + m·Φ(m/q) - max(0, m): value arises only where the decision may turn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from argosy.errors import UsageError


@dataclass(frozen=True)
class Experiment:
    """A candidate: prior gain (nats, mean and sd), noise of one run, seeds per arm, cost, and what it must wait for.

    `transfer` is the share of the gain expected to survive to the run that the decision feeds; `dollars_per_nat` is
    that run's value of a nat (:mod:`argosy.lab.dollars`).
    """

    name: str
    gain: float
    gain_sd: float
    noise_sd: float
    seeds: int
    cost: float
    dollars_per_nat: float
    transfer: float = 1.0
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.gain_sd < 0 or self.noise_sd < 0 or self.seeds < 1 or self.cost < 0 or self.dollars_per_nat < 0:
            raise UsageError(f"experiment {self.name}: a spread, cost or value is negative, or there is no seed")


def evsi(mean: float, sd: float, noise_sd: float, seeds: int) -> float:
    """Expected gain (nats) from deciding after `seeds` per arm instead of now."""
    if sd <= 0:
        return 0.0
    q = sd**2 / math.sqrt(sd**2 + 2 * noise_sd**2 / seeds)
    return q * _density(mean / q) + mean * _distribution(mean / q) - max(0.0, mean)


def evpi(mean: float, sd: float) -> float:
    """The same with perfect information: no experiment is worth more."""
    return evsi(mean, sd, 0.0, 1)


def best_seeds(experiment: Experiment, cost_per_seed: float, most: int = 64) -> int:
    """Seeds per arm of largest net value; the first one or two hold most of it when the prior is wide."""

    def net(seeds: int) -> float:
        nats = evsi(experiment.gain, experiment.gain_sd, experiment.noise_sd, seeds)
        return nats * experiment.transfer * experiment.dollars_per_nat - 2 * seeds * cost_per_seed

    return max(range(1, most + 1), key=net)


@dataclass(frozen=True)
class Ranked:
    """An experiment with its expected value, and the money spent when it is done in this order."""

    experiment: Experiment
    value: float
    perfect_value: float
    spent_before: float

    @property
    def per_dollar(self) -> float:
        """Expected value per dollar; infinite when free."""
        return self.value / self.experiment.cost if self.experiment.cost else math.inf

    @property
    def worth_it(self) -> bool:
        """Whether the value exceeds the cost."""
        return self.value > self.experiment.cost

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "name": self.experiment.name,
            "value": self.value,
            "cost": self.experiment.cost,
            "per_dollar": None if math.isinf(self.per_dollar) else self.per_dollar,
            "net": self.value - self.experiment.cost,
            "perfect_information": self.perfect_value,
            "needs": list(self.experiment.needs),
            "worth_it": self.worth_it,
        }


def rank(experiments: Sequence[Experiment], budget: float | None = None) -> list[Ranked]:
    """Order by value per dollar, a need always before what waits for it; under a budget, what fits is kept.

    A rung that unlocks others is judged with the best chain it unlocks: it is the price of an option on the next.
    """
    by_name = {one.name: one for one in experiments}
    if len(by_name) != len(experiments):
        raise UsageError("two experiments have one name")
    chains = {name: _chain(name, by_name, ()) for name in by_name}
    done: set[str] = set()
    ranked: list[Ranked] = []
    spent = 0.0
    while len(done) < len(by_name):
        candidates = []
        for name, chain in chains.items():
            todo = [need for need in chain if need not in done]
            if name in done:
                continue
            cost = sum(by_name[need].cost for need in todo)
            if budget is not None and spent + cost > budget:
                continue
            value = sum(_value(by_name[need]) for need in todo)
            candidates.append((value / cost if cost else math.inf, name, todo))
        if not candidates:
            break
        _, _, todo = max(candidates, key=lambda candidate: (candidate[0], candidate[1]))
        for name in todo:
            one = by_name[name]
            perfect = evpi(one.gain, one.gain_sd) * one.transfer * one.dollars_per_nat
            ranked.append(Ranked(one, _value(one), perfect, spent))
            spent += one.cost
            done.add(name)
    return ranked


def _value(one: Experiment) -> float:
    return evsi(one.gain, one.gain_sd, one.noise_sd, one.seeds) * one.transfer * one.dollars_per_nat


def _chain(name: str, by_name: Mapping[str, Experiment], above: tuple[str, ...]) -> list[str]:
    """All needs of an experiment, first things first, itself last."""
    if name in above:
        raise UsageError(f"experiments wait for each other: {' → '.join([*above, name])}")
    if name not in by_name:
        raise UsageError(f"{above[-1]} needs {name}, which is not in the list")
    chain: list[str] = []
    for need in by_name[name].needs:
        chain += [one for one in _chain(need, by_name, (*above, name)) if one not in chain]
    return [*chain, name]


def _density(z: float) -> float:
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def _distribution(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))
