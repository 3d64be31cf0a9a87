"""What the journal costs a training step: 40 phases and 20 collectives in steps of 50 ms.

    python bench/journal_cost.py [--steps 40] [--json]

Two figures, as shares of the step. *By its own clock*: the `telemetry` that the recorder wrote about itself. *All of
it*: the same calls without work between them, which adds what no clock inside the recorder can see, the calls
themselves. The bar of the spine is 1 % by its own clock.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from argosy.journal.heartbeat import HeartbeatPage
from argosy.journal.phys import INDEX
from argosy.journal.reader import read_file
from argosy.journal.recorder import Recorder
from argosy.journal.schema import Header

STEP_S = 0.050
PHASES, COLLECTIVES = 40, 20
NAMES = ("data_wait", "h2d_copy", "forward", "backward", "optimizer")


def one_step(recorder: Recorder, step: int) -> None:
    for number in range(PHASES):
        with recorder.phase(NAMES[number % len(NAMES)]):
            pass
    for _ in range(COLLECTIVES):
        with recorder.collective("fsdp", "all_gather", "fsdp", 4_194_304):
            pass
    recorder.end_step(step, loss_tokens=8192, loss=3.21, grad_norm=0.5, lr=3e-4)


def recorder_in(folder: Path, sample_every: int) -> Recorder:
    header = Header.of_this_process("bench", 1, 0, 1, "cpu:0", sample_every=sample_every)
    page = HeartbeatPage(folder / "heartbeat", attempt=1, rank=0, boot_id=header.boot_id)
    return Recorder(folder / "rank-0.jsonl", header, page)


def own_share(steps: int, sample_every: int) -> tuple[float, float]:
    """Telemetry ÷ window over steps of 50 ms, and bytes per step."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = recorder_in(Path(folder), sample_every)
        for step in range(steps):
            begin = time.perf_counter()
            one_step(recorder, step)
            time.sleep(max(0.0, STEP_S - (time.perf_counter() - begin)))
        recorder.close()
        path = Path(folder) / "rank-0.jsonl"
        size = path.stat().st_size - len(path.read_bytes().split(b"\n", 1)[0])
        file = read_file(path)
    assert file is not None
    windows = file.steps.t1 - file.steps.t0
    return file.steps.amounts[1:, INDEX["telemetry"]].sum() / windows[1:].sum(), size / steps


def whole_share(sample_every: int, steps: int = 400) -> float:
    """Time of all calls of a step ÷ 50 ms: the least of several rounds, since others use this machine too."""
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        recorder = recorder_in(Path(folder), sample_every)
        for first in range(0, steps, 20):
            begin = time.perf_counter()
            for step in range(first, first + 20):
                one_step(recorder, step)
            best = min(best, (time.perf_counter() - begin) / 20)
        recorder.close()
    return best / STEP_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = {}
    for name, every in (("unsampled", 10**9), ("every step sampled", 1)):
        own, size = own_share(options.steps, every)
        figures[name] = {
            "own_clock_share": round(float(own), 6),
            "all_calls_share": round(whole_share(every), 6),
            "bytes_per_step": round(size),
        }
    print(json.dumps(figures, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
