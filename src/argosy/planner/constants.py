"""The constants of the cost model: what each means, its physical starting point, and its fitted value.

All of them hold for every model, layout and source; only `gemm` differs, by die and dtype. Their values are in
``constants.toml``, written by :mod:`argosy.planner.fit`; :data:`PRIORS` says what is believed before any fit.
"""

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources

import numpy as np

from argosy.planner.workload import DIES, DTYPES, Array, Workload


@dataclass(frozen=True)
class Prior:
    """A belief before fitting: the value, and the width (of its logarithm) within which it may move."""

    value: float
    width: float
    why: str


PRIORS: dict[str, Prior] = {
    "attention": Prior(0.5, 0.15, "share of bf16 peak of a large causal attention core; SimuMax tables 0.38–0.59"),
    "wave": Prior(0.2, 0.15, "empty share of the last wave of tiles; best fit to 183 measured A100 products"),
    "fill": Prior(128.0, 0.1, "depth over which a tile's pipeline fills; best fit to the same products"),
    "memory": Prior(0.8, 0.1, "share of the memory's data-sheet rate that streaming kernels reach"),
    "attention_wave": Prior(1.5, 0.3, "waves that an attention core needs to be busy; SimuMax tables over head counts"),
    "score_passes": Prior(4.5, 0.15, "times unfused attention moves its scores (arXiv 2205.14135, fused softmax)"),
    "residual_passes": Prior(
        13.0, 0.15, "hidden-size vectors moved per token and forward: 2 norms, rotary, 2 additions"
    ),
    "ffn_passes": Prior(1.8, 0.15, "inner vectors moved per token and forward by the activation"),
    "cast_passes": Prior(2.0, 0.5, "extra moves per operand of an 8- or 4-bit product: amax, cast, transpose"),
    "eager": Prior(2.0, 0.2, "times more moves where element-wise passes are not fused"),
    "grouped": Prior(0.65, 0.2, "rate of a grouped product ÷ a plain one; SimuMax tables 0.30 against 0.48 of peak"),
    "route_passes": Prior(6.0, 0.3, "times a routed token is moved: permute, gather, restore, weigh"),
    "loss_passes": Prior(5.0, 0.2, "times the fp32 logits are moved, forward and backward"),
    "link": Prior(0.75, 0.15, "share of the scale-up link's rate that a large collective reaches"),
    "nic": Prior(0.75, 0.2, "share of the network cards' rate that a large collective reaches"),
    "nic_cloud": Prior(0.5, 0.5, "the same on a cloud's Ethernet fabric"),
    "congestion": Prior(0.05, 1.0, "loss of network rate per doubling of a group's nodes"),
    "alpha": Prior(15e-6, 0.5, "seconds to start a collective"),
    "alpha_link": Prior(2e-6, 0.5, "seconds per hop inside a domain"),
    "alpha_net": Prior(8e-6, 0.4, "seconds per hop between nodes"),
    "alpha_cloud": Prior(15e-6, 0.4, "the same on a cloud's Ethernet fabric"),
    "tp_exposed": Prior(0.6, 0.4, "share of tensor-parallel transfers left visible by software that overlaps them"),
    "dp_hidden": Prior(0.7, 0.3, "share of a compute window that gradient transfers can use beside it"),
    "fsdp_hidden": Prior(0.8, 0.5, "share of a layer's compute behind which its gather and scatter hide"),
    "p2p_exposed": Prior(0.5, 0.5, "share of steady-state stage transfers left visible"),
    "host_layer": Prior(300e-6, 0.4, "seconds the host needs to launch one layer forward"),
    "host_comm": Prior(60e-6, 0.7, "seconds the host needs to launch one collective"),
    "blocking": Prior(50e-6, 2.0, "seconds a collective waits per member for a blocking stage transfer between nodes"),
    "optimizer_passes": Prior(1.2, 0.2, "times the 30 bytes per parameter that an update must move"),
    "step_overhead": Prior(0.01, 0.5, "seconds per step outside everything above: data, logging, synchronisation"),
    "micro_overhead": Prior(2e-3, 0.7, "seconds per micro-batch of a rank outside its layers: data, loss, bookkeeping"),
    "jitter": Prior(0.003, 0.5, "loss per doubling of domains: somebody is always late"),
}

GEMM_WIDTH = 0.12
"""Width within which the reachable share of peak of a die and dtype may move."""


@dataclass(frozen=True)
class Values:
    """Constants as the formulas use them: floats; `gemm` an array [N]."""

    gemm: Array
    attention: float
    wave: float
    fill: float
    memory: float
    attention_wave: float
    score_passes: float
    residual_passes: float
    ffn_passes: float
    cast_passes: float
    eager: float
    grouped: float
    route_passes: float
    loss_passes: float
    link: float
    nic: float
    nic_cloud: float
    congestion: float
    alpha: float
    alpha_link: float
    alpha_net: float
    alpha_cloud: float
    tp_exposed: float
    dp_hidden: float
    fsdp_hidden: float
    p2p_exposed: float
    host_layer: float
    host_comm: float
    blocking: float
    optimizer_passes: float
    step_overhead: float
    micro_overhead: float
    jitter: float


@dataclass(frozen=True)
class Constants:
    """A full set: `shared` by name, `gemm` by (die, dtype)."""

    shared: dict[str, float]
    gemm: dict[tuple[str, str], float]
    spread: float
    """Width of the logarithm of predicted ÷ measured step time over sources that were not fitted."""
    origin: str

    def __len__(self) -> int:
        """How many figures were fitted."""
        return len(self.shared) + len(self.gemm)

    def values(self, w: Workload) -> Values:
        """The constants for each case of `w`."""
        table = np.full((len(DIES) + 1, len(DTYPES)), np.nan)
        for (die, dtype), share in self.gemm.items():
            table[DIES.index(die), DTYPES.index(dtype)] = share
        gemm = table[w.die.astype(int), w.dtype.astype(int)]
        return Values(gemm=np.where(np.isnan(gemm), gemm_prior(w), gemm), **self.shared)

    def scaled(self, **factors: float) -> "Constants":
        """A copy with some shared constants multiplied, `gemm` scaling all dies."""
        gemm = factors.pop("gemm", 1.0)
        shared = {name: value * factors.get(name, 1.0) for name, value in self.shared.items()}
        return Constants(shared, {k: v * gemm for k, v in self.gemm.items()}, self.spread, self.origin)


def gemm_prior(w: Workload) -> Array:
    """Reachable share of peak before any fit; 8- and 4-bit products pay for scaling factors and power."""
    return w.sustained_share * np.array([1.0, 1.0, 1.0, 0.95, 0.75])[w.dtype.astype(int)]


def prior_constants() -> Constants:
    """What is believed before any fit."""
    return Constants({name: p.value for name, p in PRIORS.items()}, {}, 0.25, "priors")


@cache
def fitted_constants() -> Constants:
    """The constants of ``constants.toml``."""
    table = tomllib.loads(resources.files("argosy.planner").joinpath("constants.toml").read_text("utf-8"))
    gemm = {(die, dtype): share for die, row in table["gemm"].items() for dtype, share in row.items()}
    return Constants(table["shared"], gemm, table["spread"], table["origin"])


def to_toml(constants: Constants) -> str:
    """The text of ``constants.toml``, each figure beside its meaning."""
    lines = [
        "# Written by `python -m argosy.planner.fit`; the meaning and the physical starting point of each constant",
        "# are in constants.py. `gemm` is the share of dense peak that a very large matrix product reaches.",
        f'origin = "{constants.origin}"',
        f"spread = {constants.spread:.4g}",
        "",
        "[shared]",
    ]
    lines += [f"{name} = {value:.4g}  # {PRIORS[name].why}" for name, value in constants.shared.items()]
    for die in dict.fromkeys(die for die, _ in constants.gemm):
        lines += ["", f"[gemm.{die}]"]
        lines += [f"{dtype} = {share:.4g}" for (d, dtype), share in constants.gemm.items() if d == die]
    return "\n".join(lines) + "\n"


assert {f.name for f in fields(Values)} == {"gemm", *PRIORS}, "a constant lacks its prior"
