"""`argosy train` inside a process that torchrun or srun started as one of several ranks.

There is no launcher: rank 0 opens the run and keeps the attempt's books, the others learn from it through the store.
Restarts are up to whoever started the ranks; the run continues from its newest checkpoint as always.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.errors import ArgosyError, Exit, StoppedError
from argosy.journal.clock import mono_ns
from argosy.launch.completion import completed
from argosy.launch.devices import resolve_slots
from argosy.launch.inline import inline_attempt
from argosy.layout.fits import check_batch, check_model
from argosy.layout.layout import Layout
from argosy.recipe.load import load_recipe
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder

_SLURM = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}
_SAY_EVERY_S = 10.0


@dataclass(frozen=True)
class Assigned:
    """The place that torchrun or srun gave this process."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


def assigned() -> Assigned | None:
    """This process's place; None when nobody gave it one."""
    torchrun = {name: os.environ.get(name) for name in _SLURM}
    # sbatch alone sets SLURM variables too; a step of srun has a number.
    slurm = {name: os.environ.get(theirs) for name, theirs in _SLURM.items()} if "SLURM_STEP_ID" in os.environ else {}
    for found in (torchrun, slurm):
        if found and all(value is not None for value in found.values()):
            rank, world_size, local_rank = (int(found[name] or 0) for name in _SLURM)
            local = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("SLURM_NTASKS_PER_NODE") or world_size
            return Assigned(rank, world_size, local_rank, int(local))
    return None


def train_assigned(place: Assigned, recipe_path: Path, sets: Sequence[str], run_dir: Path | None) -> Exit:
    """Train as one rank of many; every rank calls this with the same arguments, on a shared file system."""
    first_line_ns = mono_ns()
    recipe = load_recipe(recipe_path, sets)
    folder = run_dir or Path("runs", recipe.run.name)
    recipe = completed(recipe, folder)
    layout = Layout.for_recipe(recipe, place.world_size)
    check_batch(layout, recipe.batch_sequences)
    check_model(layout, recipe.model, recipe.data.sequence_length, recipe.vocab_size)

    from argosy.parallel.rendezvous import named_store  # torch takes seconds: mistakes above are told before

    store = named_store(place.rank, place.world_size, recipe.resilience.collective_timeout_s)
    # torchrun restarts all ranks around the same store, so each round has its own key.
    key = f"argosy/opening/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if place.rank != 0:
        return _train(place, folder, json.loads(store.get(key)), first_line_ns, store)
    try:
        slots = resolve_slots(recipe.run.device, place.local_world_size)
        with inline_attempt(folder, recipe, layout, slots) as inline:
            told: dict[str, Any] = {"finished": True}
            if inline is not None:
                told = {
                    "attempt": inline.attempt.number,
                    "paid_before_ns": inline.paid_before_ns,
                    "data": str(_prepare(recipe)),
                }
            store.set(key, json.dumps(told))
            code = _train(place, folder, told, first_line_ns, store)
            if inline is not None:
                inline.attempt.exit = code
            return code
    except ArgosyError as error:
        store.set(key, json.dumps({"error": str(error), "exit": int(error.exit_code)}))
        raise


def _prepare(recipe: Recipe) -> Path:
    from argosy.data.prepare import prepare

    return prepare(recipe, say=lambda line: print(line, flush=True)).folder


def _train(place: Assigned, folder: Path, told: dict[str, Any], first_line_ns: int, store: Any) -> Exit:
    if "error" in told:
        raise StoppedError(f"rank 0 could not open the run: {told['error']}")
    if told.get("finished"):
        if place.rank == 0:
            print(f"{folder} is finished; to train the recipe once more, give another --run-dir", flush=True)
        return Exit.DONE

    from argosy.launch.observers import detectors
    from argosy.training.observers import Observer
    from argosy.training.rank import Place, train_rank

    class Speaker(Observer):
        """Says step and loss now and then: no launcher shows a progress line."""

        def __init__(self) -> None:
            self.last_s, self.last_step = time.monotonic(), 0

        def on_step_end(self, step: int, loss: float) -> None:
            now_s = time.monotonic()
            if now_s - self.last_s >= _SAY_EVERY_S:
                rate = (step + 1 - self.last_step) / (now_s - self.last_s)
                print(f"step {step + 1}  loss {loss:.4f}  {rate:.2f} steps/s", flush=True)
                self.last_s, self.last_step = now_s, step + 1

    rank = Place(
        run_dir=folder,
        attempt=told["attempt"],
        rank=place.rank,
        world_size=place.world_size,
        local_rank=place.local_rank,
        paid_before_ns=told["paid_before_ns"],
        data_folder=Path(told["data"]),
        first_line_ns=first_line_ns,
        imported_ns=mono_ns(),
    )
    table = RunFolder.open(folder).recipe().resilience
    observers = detectors(folder, rank.attempt, place.rank, table, supervised=False)
    return train_rank(rank, [*observers, *([Speaker()] if place.rank == 0 else [])], store)
