"""How long from a fault to the verdict and to the next completed step, beside stock torchrun with DCP.

    python bench/recovery.py [--nproc 4] [--trials 3] [--stock-trials 3] [--json] [--soak-s 0 --mean-gap-s 15]

The same injector kills or stops one random rank of either. Recovery is from the fault to the end of the next completed
step that is new, that is, beyond what had been reached before. Medians, with the smallest and largest.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argosy.drill import soak
from argosy.drill.drill import prepare_folder
from argosy.drill.faults import VARIANTS, Variant
from argosy.drill.oracles import judge
from argosy.drill.scene import Stage, play, undisturbed

ROOT = Path(__file__).resolve().parents[1]
ASKED = {
    "F01 in backward": (0.1, "dead worker"),
    "F02 in forward": (6.0, "frozen worker"),
    "F03 interpreter lock held": (10.0, "interpreter held"),
    "F03 endless loop": (10.0, "endless loop"),
    "F04 in a step": (2.0, "exception"),
}
STOCK_PATIENCE_S = 30.0


def ours(stage: Stage, trials: int, chance: random.Random, only: str | None) -> list[dict[str, Any]]:
    """A row per fault."""
    rows = []
    for variant_id, (budget_s, name) in ASKED.items():
        if only not in (None, name):
            continue
        variant = next(one for one in VARIANTS if one.id == variant_id)
        found = [_one(stage, variant, chance, number) for number in range(trials)]
        rows.append(
            {
                "system": "argosy",
                "fault": name,
                "recovered": f"{sum(one['passed'] for one in found)} of {trials}",
                "verdict_s": _spread([one["verdict_s"] for one in found]),
                "asked_s": budget_s,
                "next_step_s": _spread([one["recovery_s"] for one in found]),
                "orphans": sum(one["orphans"] for one in found),
            }
        )
    return rows


def _one(stage: Stage, variant: Variant, chance: random.Random, number: int) -> dict[str, Any]:
    twin = undisturbed(stage, variant)
    seen = play(stage, variant, stage.folder / f"{variant.id.replace(' ', '-')}-{number}", chance)
    found = judge(variant, seen, twin, stage.nproc)
    passed = all(answer is not False for name, answer in found.oracles.items() if name not in ("O5", "O10"))
    return {
        "verdict_s": found.verdict_s,
        "recovery_s": found.recovery_s,
        "passed": passed,
        "orphans": len(seen.left_processes),
    }


def stock(nproc: int, trials: int, number: int, name: str, chance: random.Random) -> dict[str, Any]:
    """torchrun restarts all ranks, which start from the newest DCP checkpoint."""
    found = [_stock_trial(nproc, number, chance) for _ in range(trials)]
    recovered = [seconds for seconds, _ in found if seconds is not None]
    return {
        "system": "torchrun + DCP",
        "fault": name,
        "recovered": f"{len(recovered)} of {trials}" + ("" if recovered else f" within {STOCK_PATIENCE_S:g} s"),
        "verdict_s": None,
        "asked_s": None,
        "next_step_s": _spread(recovered),
        "orphans": sum(orphans for _, orphans in found),
    }


def _stock_trial(nproc: int, number: int, chance: random.Random) -> tuple[float | None, int]:
    with tempfile.TemporaryDirectory(prefix="stock-") as name:
        folder = Path(name)
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}"),
            *("--max-restarts=3", "--monitor-interval=0.1"),
            *(str(ROOT / "bench" / "stock_dcp.py"), name, "1000000", "128", "4"),
        ]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        quiet = subprocess.DEVNULL
        launcher = subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet, process_group=0)
        pids: list[int] = []
        try:
            if not _until(lambda: all(_last(folder, rank).get("step", 0) > 25 for rank in range(nproc)), 90):
                return None, 0
            pids = [_pid(folder, rank) for rank in range(nproc)]
            reached = _last(folder, 0)["step"]
            at_ns = time.monotonic_ns()
            os.kill(chance.choice(pids), number)
            again = _until(
                lambda: _pid(folder, 0) != pids[0] and _last(folder, 0).get("step", 0) > reached, STOCK_PATIENCE_S
            )
            seconds = (_last(folder, 0)["t"] - at_ns) / 1e9 if again else None
            pids = [_pid(folder, rank) for rank in range(nproc)]
            os.kill(launcher.pid, signal.SIGKILL)
            launcher.wait()
            time.sleep(0.5)
            return seconds, sum(_alive(pid) for pid in pids)
        finally:
            for pid in {*pids, *(_pid(folder, rank) for rank in range(nproc))} - {0}:
                if _alive(pid):
                    os.kill(pid, signal.SIGKILL)
            if launcher.poll() is None:
                os.killpg(launcher.pid, signal.SIGKILL)
                launcher.wait()


def _last(folder: Path, rank: int) -> dict[str, Any]:
    try:
        lines = (folder / f"log-{rank}.jsonl").read_text().splitlines()
        return dict(json.loads(lines[-1])) if lines else {}
    except (FileNotFoundError, ValueError):
        return {}


def _pid(folder: Path, rank: int) -> int:
    try:
        rows = [json.loads(line) for line in (folder / f"log-{rank}.jsonl").read_text().splitlines()]
    except (FileNotFoundError, ValueError):
        return 0
    return next((row["pid"] for row in reversed(rows) if "pid" in row), 0)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _until(condition: Callable[[], bool], limit_s: float) -> bool:
    give_up = time.monotonic() + limit_s
    while time.monotonic() < give_up:
        if condition():
            return True
        time.sleep(0.02)
    return False


def _spread(values: list[float | None]) -> dict[str, float] | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return {"median": statistics.median(known), "low": known[0], "high": known[-1]}


def _text(spread: dict[str, float] | None) -> str:
    if spread is None:
        return "–"
    return f"{spread['median']:.2f} [{spread['low']:.2f}, {spread['high']:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nproc", type=int, default=4)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--stock-trials", type=int, default=3)
    parser.add_argument("--only", choices=[name for _, name in ASKED.values()], help="one fault")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--soak-s", type=float, default=0.0)
    parser.add_argument("--mean-gap-s", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="recovery-") as name:
        prepare_folder(Path(name), consent=True)
        stage = Stage(Path(name), ROOT / "recipes" / "tiny.toml", options.nproc, options.steps, ())
        rows = ours(stage, options.trials, chance, options.only) if options.trials else []
        for number, fault in ((signal.SIGKILL, "dead worker"), (signal.SIGSTOP, "frozen worker")):
            if options.stock_trials and options.only in (None, fault):
                rows.append(stock(options.nproc, options.stock_trials, number, fault, chance))
        soaked = None
        if options.soak_s:
            soaked = soak.run(stage, options.soak_s, options.mean_gap_s, options.seed)
    if options.json:
        print(json.dumps({"rows": rows, "soak": soaked.to_json_object() if soaked else None}))
        return
    heads = ("system", "fault", "recovered", "verdict s", "asked", "verdict to next step s")
    print("{:<16}{:<18}{:<18}{:<22}{:>6}  {:<24}orphans".format(*heads))
    for row in rows:
        asked = "" if row["asked_s"] is None else f"{row['asked_s']:g}"
        print(
            f"{row['system']:<16}{row['fault']:<18}{row['recovered']:<18}{_text(row['verdict_s']):<22}{asked:>6}  "
            f"{_text(row['next_step_s']):<24}{row['orphans']}"
        )
    if soaked:
        print(*soaked.lines(), sep="\n")


if __name__ == "__main__":
    main()
