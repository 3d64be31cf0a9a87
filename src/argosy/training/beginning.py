"""Where a run without a checkpoint of its own begins: at random weights, or at what `init.from` names."""

import torch
import torch.distributed as dist
from torch import Tensor

from argosy.checkpoint.find import look
from argosy.checkpoint.load import load, restore_rng
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.origin import TOKENIZER_FILE, Origin, check_load, find_origin
from argosy.checkpoint.state import Tree
from argosy.data.prepare import Prepared
from argosy.data.tokenizer import Tokenizer
from argosy.errors import UsageError
from argosy.models.hf.tensors import HfFolder
from argosy.models.split import local, owned
from argosy.recipe.schema import Recipe
from argosy.training.state import LoopState

_PARTS = {"weights": ("model",), "weights+optimizer": ("model", "optimizer"), "all": ("model", "optimizer", "rng")}


def begin(
    recipe: Recipe, tree: Tree, data: Prepared, rank: int, world_size: int, group: dist.ProcessGroup | None
) -> LoopState:
    """Fill `tree` with what `init.load` takes from `init.from`; the state of the loop to begin with.

    Collective over `group`. Raises InputError or UsageError, on all ranks alike, when the origin is damaged, of another
    shape or tokenizer, or holds not what is asked for.
    """
    if recipe.init.from_ is None:
        return LoopState()
    origin = find_origin(recipe.init.from_)
    check_load(recipe, origin)
    if origin.kind == "hugging face":
        _check_tokenizer(origin, _digest_beside(origin), data)
        _read_folder(origin, tree["model"])
        return LoopState()
    manifest = _whole(origin, group)
    _check_tokenizer(origin, manifest.vocabulary_digest or _digest_beside(origin), data)
    parts = {name: tree[name] for name in _PARTS[recipe.init.load]}
    if recipe.init.load != "all":
        load(origin.folder, manifest, parts, group)
        return LoopState()
    if manifest.data_digest != data.digest:
        raise UsageError(
            f"step {manifest.step} stands at a position in data of digest {manifest.data_digest}, not {data.digest}",
            where="init.load = 'all'",
            do="set it to 'weights+optimizer' to train on other data",
        )
    same_world = manifest.world_size == world_size
    if not same_world:  # as when a run goes on at another size: there is a random state for each rank
        del parts["rng"]
    load(origin.folder, manifest, parts, group)
    if same_world:
        restore_rng(tree, rank)
    return LoopState.from_dict(manifest.training)


def _digest_beside(origin: Origin) -> str | None:
    """Of the vocabulary that came with the weights; None where none did."""
    file = None if origin.companions is None else origin.companions / TOKENIZER_FILE
    return Tokenizer.load(file).vocabulary_digest if file is not None and file.exists() else None


def _check_tokenizer(origin: Origin, digest: str | None, data: Prepared) -> None:
    """Equal ids must mean equal text."""
    if digest not in (None, data.tokenizer.vocabulary_digest):
        raise UsageError(
            f"the data is made of other tokens than those that the weights in {origin.name} know",
            where=str(data.folder),
            do=f"build it with `argosy data build … --tokenizer {origin.name}`",
        )


def _whole(origin: Origin, group: dist.ProcessGroup | None) -> Manifest:
    """The origin's manifest, after every byte of its files was checked."""
    found = look(origin.folder, group)
    if isinstance(found, Exception):
        raise found
    return found


@torch.no_grad()
def _read_folder(origin: Origin, parameters: dict[str, Tensor]) -> None:
    """Each rank maps the folder and copies its own part of one tensor after the other."""
    with HfFolder(origin.folder) as weights:
        for name, whole in weights.parameters():
            target = parameters.get(name)
            if target is None:
                continue  # another stage's
            if whole.shape != target.shape:
                raise UsageError(
                    f"{name} is {list(whole.shape)} there, {list(target.shape)} here",
                    where=str(origin.folder),
                    do="leave the [model] table out to take theirs",
                )
            mine = whole
            for dim, indices in enumerate(owned(target)):
                mine = mine.index_select(dim, indices) if len(indices) < mine.size(dim) else mine
            local(target).copy_(mine)
