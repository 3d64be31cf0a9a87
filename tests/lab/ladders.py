"""Planted ladders: runs whose law is known."""

import numpy as np

from argosy.lab.runs import Runs
from argosy.laws.loss import EPOCH_REPLICATION, LossLaw


def planted(law: LossLaw = EPOCH_REPLICATION, noise: float = 0.001, seed: int = 0, sizes: int = 9) -> Runs:
    """A grid of sizes and tokens per parameter with relative noise."""
    rng = np.random.default_rng(seed)
    n = np.repeat(np.geomspace(3e7, 3e9, sizes), 5)
    d = n * np.tile([5.0, 10.0, 20.0, 40.0, 80.0], sizes)
    loss = np.array([law.loss(a, b) for a, b in zip(n, d, strict=True)]) * (1 + noise * rng.standard_normal(len(n)))
    return Runs(n, d, 6 * n * d, loss)


def sweep(levels: int = 7, sizes: int = 8, noise: float = 0.0005, seed: int = 0) -> Runs:
    """IsoFLOP sweeps around the optimum of the published law."""
    rng = np.random.default_rng(seed)
    rows = []
    for budget in np.geomspace(1e18, 1e21, levels):
        best, _ = EPOCH_REPLICATION.optimum(budget)
        for n in best * np.geomspace(0.25, 4, sizes):
            d = budget / 6 / n
            rows.append((n, d, budget, EPOCH_REPLICATION.loss(n, d) * (1 + noise * rng.standard_normal())))
    return Runs(*np.array(rows).T)


def csv_text(runs: Runs, **extra: list[object]) -> str:
    """The runs as a CSV with the columns N, D, flops, loss and `extra`."""
    head = ["N", "D", "flops", "loss", *extra]
    columns = [runs.parameters, runs.tokens, runs.compute_flops, runs.loss, *extra.values()]
    rows = [",".join(str(cell) for cell in row) for row in zip(*columns, strict=True)]
    return "\n".join([",".join(head), *rows]) + "\n"
