"""Runs of the tiny recipe for tests: made here, trained by real ranks, read back by an independent reader."""

import hashlib
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from argosy.data.prepare import prepare
from argosy.launch.paid import close_paid, open_paid
from argosy.launch.paid_before import paid_before_ns
from argosy.recipe.load import load_recipe
from argosy.registry.run_folder import RunFolder
from argosy.training.observers import Observer
from argosy.training.rank import Place, train_rank

RECIPE = Path(__file__).parent.parent / "recipes" / "tiny.toml"
SMALL = (
    "model.layers=2",
    "model.hidden_size=32",
    "model.heads=2",
    "model.kv_heads=1",
    "model.ffn_size=64",
    "data.sequence_length=32",
    "batch.tokens=384",
    "objective.tokens=2304",
    "schedule.warmup_tokens=0",
    "eval.every_steps=0",
    "eval.tokens=512",
    "eval.final_tokens=512",
    "checkpoint.every_steps=100",
)
"""Six steps of twelve sequences, each a few milliseconds; no evaluation and no save before the end."""


def make_run(path: Path, *sets: str) -> RunFolder:
    """A run folder of the tiny recipe with `sets`; its data is ready."""
    recipe = load_recipe(RECIPE, sets)
    prepare(recipe)
    return RunFolder.create_or_continue(path, recipe)


def train(run_ranks: Any, run: RunFolder, ranks: int, observers: Sequence[Observer] = ()) -> list[int]:
    """One attempt on real gloo ranks, paid for from now to its end; the ranks' exit codes."""
    paid_ns = paid_before_ns(run)
    attempt = run.claim_attempt()
    devices = [f"cpu:{rank}" for rank in range(ranks)]
    open_paid(run, devices, time.monotonic_ns(), hold=False)
    try:
        return run_ranks(ranks, train_here, run.path, attempt, paid_ns, list(observers), timeout_s=120)
    finally:
        close_paid(run, devices, time.monotonic_ns())


def train_here(run_dir: Path, attempt: int, paid_ns: int, observers: list[Observer]) -> int:
    """Runs on each rank; the test fixture's own process group makes way for the engine's."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    leave_default_group()
    now_ns = time.monotonic_ns()
    place = Place(run_dir, attempt, rank, world_size, rank, paid_ns, first_line_ns=now_ns, imported_ns=now_ns)
    return int(train_rank(place, observers))


def leave_default_group() -> None:
    """Make way for another default process group on all ranks."""
    dist.barrier()
    dist.destroy_process_group()


class StopAfter(Observer):
    """Asks for a clean stop once `steps` steps are done, as `argosy stop` does."""

    def __init__(self, run: RunFolder, steps: int):
        self.file = run.control / "stop"
        self.steps = steps

    def on_step_end(self, step: int, loss: float) -> None:
        if step + 1 == self.steps:
            self.file.write_text("test")


def records(run: RunFolder, attempt: int, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    lines = run.rank_file(attempt, rank).read_bytes().splitlines()
    return [record for line in lines if (record := orjson.loads(line))["k"] == kind]


def losses(run: RunFolder) -> dict[int, float]:
    """Loss of each step; of its last visit, over all attempts."""
    return {step["s"]: step["l"] for attempt in run.attempts() for step in records(run, attempt, "step")}


def tensors_in(checkpoint: Path) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint, read by DCP alone: none of Argosy's code is involved."""
    reader = dcp.FileSystemReader(checkpoint)
    found = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in reader.read_metadata().state_dict_metadata.items()
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="torch.distributed.checkpoint")
        dcp.load(found, storage_reader=reader, no_dist=True)
    return found


def digests(run: RunFolder, step: int) -> dict[str, str]:
    """Bits of weights and moments, by name."""
    return digests_in(run.checkpoints / f"step-{step}")


def digests_in(checkpoint: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256(tensor.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
        for name, tensor in tensors_in(checkpoint).items()
        if not name.startswith("rng.")
    }
