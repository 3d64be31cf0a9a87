"""How long the simulator takes, against what was asked, and how near it comes to answers that are known.

    python bench/simulator_speed.py [--json] [--replications 1000]

Times are of this machine at this moment: medians over repeats, and CPU time beside wall time, as it may be shared.
"""

import argparse
import json
import resource
import statistics
import time
from dataclasses import replace

from argosy.simulator.course import Course
from argosy.simulator.failures import DAY_S, preset
from argosy.simulator.job import Job, SaveTimes, restart_phases, save_times
from argosy.simulator.replicate import replicate
from argosy.simulator.scenario import Scenario
from argosy.simulator.validate import closed_forms, published, run

LLAMA = Job(16_384, 6.0, save_times(10.0, 60.0, 60.0), restart_phases(16_384), spares=16)
MEMORY = LLAMA.saves | {"memory": SaveTimes(0.05, 1.0, 10.0)}
LARGE = Job(100_000, 6.0, save_times(10.0, 60.0, 60.0), restart_phases(100_000), spares=64)
SCENARIOS = {
    "16,384 GPUs, 54 days": (Scenario(LLAMA, preset("llama3"), 54 * DAY_S), 1.0, 5),
    "the same, copies in memory each step": (
        Scenario(replace(LLAMA, saves=MEMORY), preset("llama3"), 54 * DAY_S),
        1.0,
        3,
    ),
    "the same, 16 replica groups": (Scenario(replace(LLAMA, replica_groups=16), preset("llama3"), 54 * DAY_S), 1.0, 3),
    "100,000 GPUs, a year": (Scenario(LARGE, preset("llama3"), 365 * DAY_S), 10.0, 1),
}
"""Name → (scenario, seconds asked, repeats)."""


def one(scenario: Scenario, repeats: int, *, detailed: bool = False) -> tuple[float, float, float]:
    """(median wall, median CPU, useful share) of single courses."""
    walls, cpus, shares = [], [], []
    for seed in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        s = scenario
        outcome = Course(s.job, s.failures, s.policies, horizon_s=s.horizon_s, seed=seed, detailed=detailed).run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        shares.append(outcome.useful_share)
    return statistics.median(walls), statistics.median(cpus), statistics.mean(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--replications", type=int, default=1000)
    asked = parser.parse_args()
    one(SCENARIOS["16,384 GPUs, 54 days"][0], 1)  # warm
    speed = []
    for name, (scenario, limit_s, repeats) in SCENARIOS.items():
        wall_s, cpu_s, share = one(scenario, repeats)
        speed.append({"what": name, "asked_s": limit_s, "wall_s": wall_s, "cpu_s": cpu_s, "useful_share": share})
    scenario = SCENARIOS["16,384 GPUs, 54 days"][0]
    begin = time.perf_counter()
    replicate(scenario, asked.replications, processes=2)
    wall_s = time.perf_counter() - begin
    many = {
        "what": f"{asked.replications} replications on 2 cores",
        "asked_s": 60.0 * asked.replications / 1000,
        "wall_s": wall_s,
    }
    peak_mb = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1e3
    known = []
    for case in (*closed_forms(), *published()):
        verdict = run(case)
        row = {name: getattr(case, name) for name in ("name", "low", "high", "expected", "assumed")}
        known.append(row | {"simulated": verdict.useful.mean, "half": verdict.useful.half, "holds": verdict.holds})
    if asked.json:
        print(json.dumps({"speed": [*speed, many], "peak_mb": peak_mb, "known": known}))
        return
    print(f"{'':<40}{'asked s':>9}{'wall s':>9}{'CPU s':>9}{'useful':>9}")
    for row in speed:
        print(
            f"{row['what']:<40}{row['asked_s']:>9.1f}{row['wall_s']:>9.3f}{row['cpu_s']:>9.3f}{row['useful_share']:>9.4f}"
        )
    print(f"{many['what']:<40}{many['asked_s']:>9.1f}{wall_s:>9.1f}")
    print(f"peak memory of parent and largest child together: {peak_mb:.0f} MB (asked: 500)\n")
    for row in known:
        exact = row["expected"]
        bounds = f"{row['low']:.2f}–{row['high']:.2f}" if exact is None else f"{exact:.4f}"
        off = "" if exact is None else f"{100 * (row['simulated'] / exact - 1):+.2f} %"
        print(f"{row['name']:<70}{bounds:>10}{row['simulated']:>8.4f} ± {row['half']:.4f} {off:>8} {row['holds']}")


if __name__ == "__main__":
    main()
