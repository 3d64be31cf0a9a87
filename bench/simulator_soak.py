"""Does the simulator foretell our own soaks? Kills the ranks of real training at random, and predicts the useful share.

    python bench/simulator_soak.py [--seconds 90] [--mean-gap 12] [--ranks 2] [--json]

The simulator is told what the soak measured of one step and one restart, and how often it killed; no more.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from typing import Any

from argosy.policy.recovery import RecoveryPolicy
from argosy.simulator.failures import Fault, exponential
from argosy.simulator.job import Job, SaveTimes, restart_phases
from argosy.simulator.replicate import Interval, replicate
from argosy.simulator.scenario import Scenario

ASKED_POINTS = 3.0


def soak(seconds: float, mean_gap_s: float, ranks: int) -> dict[str, Any]:
    """What `argosy drill --soak` says as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["drill", "recipes/tiny.toml", "--soak", f"{seconds:g}s", "--mean-gap", f"{mean_gap_s:g}s"]
        words += ["--nproc", str(ranks), "--seed", "1", "--into", f"{folder}/drills", "--json"]
        done = subprocess.run([sys.executable, "-m", "argosy", *words], capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout))


def predict(soaked: dict[str, Any], ranks: int, replications: int = 40) -> Interval:
    """Useful share of a job that copies its state to memory at each step, which costs it next to nothing."""
    phases = {rung: {"reschedule": soaked["restart_s"]} for rung in restart_phases(ranks)} | {"requeue": {}}
    none = SaveTimes(0.0, 0.0, 0.0)
    job = Job(ranks, soaked["step_s"], {"storage": none, "memory": none}, phases, per_node=ranks)
    gap_s = soaked["seconds"] / max(soaked["kills"], 1)
    always = RecoveryPolicy(rungs=("restart_workers",), restarts_limit=10**9)
    failures = exponential(gap_s, 1, Fault("kill", "process", 1.0, 0.0))
    changes = {"save.every_steps": 200, "save_memory.every_steps": 1}
    scenario = Scenario(job, failures, soaked["seconds"], changes, (always,))
    return Interval.of(replicate(scenario, replications).effective_share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--mean-gap", type=float, default=12.0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    soaked = soak(asked.seconds, asked.mean_gap, asked.ranks)
    predicted = predict(soaked, asked.ranks)
    points = 100 * (predicted.mean - soaked["useful_share"])
    if asked.json:
        print(json.dumps({"soak": soaked, "predicted": asdict(predicted), "points": points}))
        return
    print(f"{soaked['kills']} kills in {soaked['seconds']:.0f} s, steps of {1000 * soaked['step_s']:.0f} ms, "
          f"restarts of {soaked['restart_s']:.2f} s")  # fmt: skip
    print(f"useful share measured {soaked['useful_share']:.1%}, simulated {predicted.mean:.1%} ± {predicted.half:.1%}: "
          f"{points:+.1f} points (asked: within {ASKED_POINTS:g})")  # fmt: skip


if __name__ == "__main__":
    main()
