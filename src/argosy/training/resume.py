"""Where an attempt begins: at the newest state of its run, wherever that lies, else at what the recipe names."""

from pathlib import Path

import torch.distributed as dist

from argosy.checkpoint.agreement import first_error, on_all_ranks
from argosy.checkpoint.copies import Copies
from argosy.checkpoint.find import find
from argosy.checkpoint.folders import saved_steps
from argosy.checkpoint.load import load, restore_rng
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.state import Tree
from argosy.data.prepare import Prepared
from argosy.errors import InputError, UsageError
from argosy.journal.recorder import Recording
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder
from argosy.training.beginning import begin
from argosy.training.memory_tier import Memory
from argosy.training.state import LoopState


def resume(
    run: RunFolder,
    recipe: Recipe,
    data: Prepared,
    ours: Manifest,
    tree: Tree,
    group: dist.ProcessGroup | None,
    memory: Memory | None,
    recorder: Recording,
) -> tuple[LoopState, int]:
    """Load the newest snapshot or whole checkpoint into `tree`, else what the recipe starts from; collective.

    Returns the state of the loop, and the newest step that needs no save any more.

    `ours` is the manifest of the attempt that begins. Raises InputError when checkpoints exist and none is whole,
    UsageError when they belong to other data.
    """
    rank = 0 if group is None else dist.get_rank(group)
    newest = on_all_ranks(lambda: max(saved_steps(run.checkpoints), default=0), group)[0].value or 0
    if memory is not None and (state := memory.restore(tree, newest, group)) is not None:
        recorder.event("restore", id=f"step-{state.step}", to=state.step, tier="memory", why="failure")
        return state, newest
    found = _find(run, recipe.checkpoint.copy_to, ours.generation, rank, group)
    if found is None:
        state = begin(recipe, tree, data, rank, ours.world_size, group)
        return state, state.step
    folder, manifest = found
    if manifest.data_digest != data.digest:
        raise UsageError(
            f"the run was trained on data of digest {manifest.data_digest}, not {data.digest}",
            where=str(data.folder),
            do="put the old data back, or start a new run",
        )
    same_world = manifest.world_size == ours.world_size
    parts = tree if same_world else {name: part for name, part in tree.items() if name != "rng"}
    load(folder, manifest, parts, group)
    if same_world:
        restore_rng(tree, rank)
    state = LoopState.from_dict(manifest.training)
    recorder.event("restore", id=folder.name, to=manifest.step, tier="storage", why="resume")
    return state, state.step


def _find(
    run: RunFolder, copy_to: str | None, generation: int, rank: int, group: dist.ProcessGroup | None
) -> tuple[Path, Manifest] | None:
    """The newest whole checkpoint here, else the newest copy, brought back."""
    lost: InputError | None = None
    try:
        if (found := find(run.checkpoints, group=group, generation=generation)) is not None:
            return found
    except InputError as error:
        lost = error

    def fetch() -> int | None:
        if rank != 0 or copy_to is None:
            return None
        copies = Copies(copy_to, run.info.id)
        newest = max(copies.steps(), default=None)
        if newest is not None:
            copies.fetch(run.checkpoints, newest, generation)
        return newest

    outcomes = on_all_ranks(fetch, group)
    if refused := first_error(outcomes):
        raise refused
    if (step := outcomes[0].value) is not None:
        return find(run.checkpoints, step, group=group, generation=generation)
    if lost is not None:
        raise lost
    return None
