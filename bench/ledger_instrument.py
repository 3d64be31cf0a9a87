"""What the instruments cost a real training step of about 50 ms on one CPU thread: journal, processor time, profiles.

    python bench/ledger_instrument.py [--steps 800] [--json]

Steps with all instruments and steps without any alternate, so that whatever else the machine does hits both arms.
*By its own clock* is the `telemetry` that the recorder wrote about itself, with and without the steps that were
profiled; the bars are 0.5 % and 1 %. The difference of the arms is an upper bound: it has the machine's noise in it,
hence the interval (bootstrap over pairs, 95 %).
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from argosy.journal.heartbeat import HeartbeatPage
from argosy.journal.off_cpu import OffCpu
from argosy.journal.phys import INDEX, MATH
from argosy.journal.reader import read_file
from argosy.journal.recorder import NULL, Recorder
from argosy.journal.schema import Header
from argosy.training.memory import MemoryWatch
from argosy.training.observers import Observer
from argosy.training.profiler import StepProfiler

COLLECTIVES = 20
EVERY = 100


def _block(width: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Work:
    """Layers of a decoder's shapes, with as much batch as takes about 50 ms."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(_block(256) for _ in range(8)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True)
        rows = 64
        while self._time(rows) < 0.045 and rows < 4096:
            rows *= 2
        self.batch = torch.randn(rows, 256)

    def _time(self, rows: int) -> float:
        self.batch = torch.randn(rows, 256)
        self.step(NULL, [], -1)
        begin = time.perf_counter()
        self.step(NULL, [], -1)
        return time.perf_counter() - begin

    def step(self, recorder: Any, observers: list[Observer], number: int) -> None:
        for observer in observers:
            observer.on_phase("data_wait", number)
        with recorder.phase("data_wait"):
            pass
        with recorder.phase("optimizer"):
            self.optimizer.zero_grad()
        with recorder.phase("forward"):
            loss = self.model(self.batch).square().mean()
        with recorder.phase("backward"):
            for _ in range(COLLECTIVES):
                with recorder.collective("fsdp", "all_gather", "fsdp", 4_194_304):
                    pass
            loss.backward()
        with recorder.phase("optimizer"):
            self.optimizer.step()
        for observer in observers:
            observer.on_update(number, True)
        recorder.end_step(number, loss_tokens=8192, loss=3.2, grad_norm=0.5, lr=3e-4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=800, help="of each arm")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    work = Work()
    with tempfile.TemporaryDirectory() as folder:
        header = Header.of_this_process("bench", 1, 0, 1, "cpu:0", sample_every=EVERY)
        page = HeartbeatPage(Path(folder) / "heartbeat", attempt=1, rank=0, boot_id=header.boot_id)
        off_cpu = OffCpu(frozenset(INDEX[name] for name in MATH))
        recorder = Recorder(Path(folder) / "rank-0.jsonl", header, page, off_cpu=off_cpu)
        tree = {"model": dict(work.model.named_parameters()), "optimizer": {}}
        observers: list[Observer] = [
            StepProfiler(recorder, [work.model], torch.device("cpu"), seed=0, every=EVERY, share=0.005, first_step=0),
            MemoryWatch(recorder, tree, torch.device("cpu"), seed=0, every=EVERY),
        ]
        seconds = np.zeros((options.steps, 2))
        for number in range(options.steps):
            for arm in (0, 1) if number % 2 else (1, 0):
                begin = time.perf_counter()
                work.step(recorder if arm else NULL, observers if arm else [], number)
                seconds[number, arm] = time.perf_counter() - begin
        recorder.close()
        file = read_file(Path(folder) / "rank-0.jsonl")
    assert file is not None
    profiled = [int(np.searchsorted(file.steps.t1, row["t"])) for row in file.of_kind("device")]
    cost_ns = [row["cost"] for row in file.of_kind("device")]
    telemetry = file.steps.amounts[:, INDEX["telemetry"]].astype(float)
    plain = np.setdiff1d(np.arange(1, options.steps), profiled)
    step_ns = float(np.median(seconds[:, 0])) * 1e9
    ratio = seconds[5:, 1] / seconds[5:, 0] - 1
    dice = np.random.default_rng(0)
    medians = [float(np.median(dice.choice(ratio, len(ratio)))) for _ in range(1000)]
    figures = {
        "step_ms": round(step_ns / 1e6, 2),
        "own_clock_share": round(float(np.median(telemetry[plain])) / step_ns, 6),
        "own_clock_share_with_profiles": round(float(telemetry[1:].mean()) / step_ns, 6),
        "profiles": len(cost_ns),
        "profile_ms": round(float(np.median(cost_ns)) / 1e6, 2) if cost_ns else None,
        "arms_median_difference": round(float(np.median(ratio)), 5),
        "arms_interval_95": [round(float(q), 5) for q in np.percentile(medians, (2.5, 97.5))],
        "pairs": len(ratio),
    }
    print(json.dumps(figures, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
