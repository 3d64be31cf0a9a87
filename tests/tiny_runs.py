"""Runs of the tiny recipe for tests: made here, trained by real ranks, read back by an independent reader."""

import hashlib
import json
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from argosy.data.prepare import prepare
from argosy.recipe.load import load_recipe
from argosy.registry.run_folder import RunFolder
from argosy.training.observers import Observer
from argosy.training.rank import Place, train_rank

RECIPE = Path(__file__).parent.parent / "recipes" / "tiny.toml"


def make_run(path: Path, *sets: str) -> RunFolder:
    """A run folder of the tiny recipe with `sets`; its data is ready."""
    recipe = load_recipe(RECIPE, sets)
    prepare(recipe)
    return RunFolder.create_or_continue(path, recipe)


def train(run_ranks: Any, run: RunFolder, ranks: int, observers: Sequence[Observer] = ()) -> list[int]:
    """One attempt on real gloo ranks, as the launcher would start it; the ranks' exit codes."""
    attempt = run.claim_attempt()
    opened = {"k": "paid", "ph": "open", "t": time.monotonic_ns(), "host": socket.gethostname(), "state": "allocated"}
    with run.paid_file.open("a") as file:
        file.write(json.dumps(opened | {"dev": "cpu:0", "wall": time.time_ns()}) + "\n")
    return run_ranks(ranks, train_here, run.path, attempt, list(observers), timeout_s=120)


def train_here(run_dir: Path, attempt: int, observers: list[Observer]) -> int:
    """Runs on each rank; the test fixture's own process group makes way for the engine's."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    dist.barrier()
    dist.destroy_process_group()
    os.environ["OMP_NUM_THREADS"] = "1"
    now_ns = time.monotonic_ns()
    place = Place(run_dir, attempt, rank, world_size, rank, 0, first_line_ns=now_ns, imported_ns=now_ns)
    return int(train_rank(place, observers))


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


def tensors(run: RunFolder, step: int) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint, read by DCP alone: none of Argosy's code is involved."""
    reader = dcp.FileSystemReader(run.checkpoints / f"step-{step}")
    found = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in reader.read_metadata().state_dict_metadata.items()
    }
    dcp.load(found, storage_reader=reader, no_dist=True)
    return found


def digests(run: RunFolder, step: int) -> dict[str, str]:
    """Bits of weights and moments, by name."""
    return {
        name: hashlib.sha256(tensor.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
        for name, tensor in tensors(run, step).items()
        if not name.startswith("rng.")
    }
