"""How long `argosy lab fit` takes: 250 planted points, 1,000 bootstraps, the whole method from table to answer.

    python bench/lab_speed.py [--json FILE]

Asked: at most 5 s. Peers by their own documentation: a grid of 4,500 L-BFGS starts takes minutes per bootstrap set.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from argosy.lab.answer import answer, fit_table
from argosy.lab.table import read_table
from argosy.laws.loss import EPOCH_REPLICATION


def write_table(path: Path, sizes: int) -> None:
    """`sizes` sizes × 5 ratios with half a per cent of noise."""
    rng = np.random.default_rng(0)
    lines = ["N,D,flops,loss"]
    for n in np.geomspace(3e7, 3e9, sizes):
        for ratio in (5, 10, 20, 40, 80):
            d = ratio * n
            loss = EPOCH_REPLICATION.loss(n, d) * (1 + 0.005 * rng.standard_normal())
            lines.append(f"{n},{d},{6 * n * d},{loss}")
    path.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.csv"
        for sizes in (10, 50):
            write_table(path, sizes)
            wall, cpu = time.perf_counter(), time.process_time()
            table = read_table(path)
            fits = fit_table(table, ["N", "D"], "loss", predict=["N=1e10,D=2e11"])
            fitted = time.process_time() - cpu
            said = answer(fits, table, resamples=1000)
            rows.append(
                {
                    "points": 5 * sizes,
                    "resamples": 1000,
                    "wall_s": time.perf_counter() - wall,
                    "cpu_s": time.process_time() - cpu,
                    "cpu_of_fit_and_backtests_s": fitted,
                    "prediction": said["prediction"],
                }
            )
            print({key: round(value, 3) if isinstance(value, float) else value for key, value in rows[-1].items()})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
