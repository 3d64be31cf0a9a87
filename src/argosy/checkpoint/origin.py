"""What `init.from` names: a run, a checkpoint, an imported folder, or a model folder of Hugging Face. No torch here."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from argosy.checkpoint.folders import saved_steps, step_folder
from argosy.checkpoint.manifest import FILE_NAME, read_manifest
from argosy.errors import InputError, UsageError
from argosy.models.hf.config import CONFIG_FILE, model_table
from argosy.recipe.model_table import ModelTable
from argosy.recipe.schema import Recipe, TokenizerTable
from argosy.registry.run_folder import RunFolder

MODEL_FILE = "model.toml"
"""In an imported folder: the recipe's model table."""
COMPANIONS = "huggingface"
"""In an imported folder: what came with the weights (tokenizer, its settings, config.json)."""
TOKENIZER_FILE = "tokenizer.json"

Kind = Literal["run", "imported", "checkpoint", "hugging face"]


@dataclass(frozen=True)
class Origin:
    """Where weights come from.

    Attributes:
        folder: the ``step-S`` folder, or the folder of Hugging Face.
        step: None for a folder of Hugging Face.
        name: of the folder as it may stand in `init.from`, its step pinned.
        parent: how run.json names it: run id and step, or the folder.
        model: None where nothing tells it.
        recipe: of the run; None for anything else.
        companions: folder with what came beside the weights; None for a run (its data has the tokenizer).
    """

    kind: Kind
    folder: Path
    step: int | None
    name: str
    parent: str
    model: ModelTable | None
    recipe: Recipe | None = None
    companions: Path | None = None

    @property
    def tokenizer(self) -> TokenizerTable | None:
        """The tokenizer that the weights were trained with, as a recipe's table; None where nothing says."""
        if self.recipe is not None:
            return self.recipe.tokenizer
        if self.companions is None or not (self.companions / TOKENIZER_FILE).exists():
            return None
        return TokenizerTable(kind="file", path=str(self.companions / TOKENIZER_FILE))


def find_origin(name: str) -> Origin:
    """What `name` (a path, or RUN@STEP) stands for. Nothing is read but names and small tables.

    Raises InputError when there is nothing of the kind, or no such step.
    """
    path, step = split_step(name)
    if (path / "run.json").exists():
        return _of_run(path, step)
    if step is not None:
        raise InputError("is no run, so it has no steps to choose from", where=str(path), do=f"leave out @{step}")
    if (path / MODEL_FILE).exists():
        return _imported(path)
    if (path / FILE_NAME).exists():
        return _of_checkpoint(path)
    if (path / CONFIG_FILE).exists():
        return Origin("hugging face", path, None, str(path), str(path), model_table(path), companions=path)
    what = "is nothing to start from" if path.exists() else "no such folder"
    raise InputError(
        what,
        where=str(path),
        do="name a run (RUN or RUN@STEP), a checkpoint, a folder of `argosy weights import` or one of Hugging Face",
    )


def split_step(name: str) -> tuple[Path, int | None]:
    """``RUN@STEP`` as path and step; a path that exists is one, whatever it contains."""
    path, at, step = name.rpartition("@")
    if at and step.isdecimal() and not Path(name).expanduser().exists():
        return Path(path).expanduser(), int(step)
    return Path(name).expanduser(), None


def check_load(recipe: Recipe, origin: Origin) -> None:
    """Refuse what cannot be loaded from `origin` into a run of `recipe`.

    Raises UsageError with the reason: parts that the origin does not have, or that would mean something else here.
    """
    load = recipe.init.load
    if origin.model is not None and (fields := _other_shape(recipe, origin.model)):
        raise UsageError(
            f"the weights in {origin.name} have another shape: {', '.join(fields)}",
            where="model",
            do="leave the [model] table out to take that of init.from",
        )
    if load == "weights":
        return
    if origin.kind in ("imported", "hugging face"):
        raise UsageError(
            f"{origin.name} holds weights and nothing else", where=f"init.load = '{load}'", do="set it to 'weights'"
        )
    if origin.recipe is None:
        return
    if recipe.optimizer.kind != origin.recipe.optimizer.kind:
        raise UsageError(
            f"the state of {origin.recipe.optimizer.kind} means nothing to {recipe.optimizer.kind}",
            where=f"init.load = '{load}'",
            do="set it to 'weights', or keep optimizer.kind",
        )
    if load == "all":
        _check_position(recipe, origin.recipe, origin.step or 0)


def _check_position(recipe: Recipe, was: Recipe, step: int) -> None:
    pairs = {
        "run.seed": (was.run.seed, recipe.run.seed),
        "data.sequence_length": (was.data.sequence_length, recipe.data.sequence_length),
        "batch.tokens": (was.batch.tokens, recipe.batch.tokens),
    }
    if fields := [f"{key} was {old}, is {new}" for key, (old, new) in pairs.items() if old != new]:
        raise UsageError(
            f"the position in the data would mean other samples: {', '.join(fields)}",
            where="init.load = 'all'",
            do="put them back, or set it to 'weights+optimizer'",
        )
    if step >= recipe.total_steps:
        raise UsageError(
            f"step {step} is at or beyond the horizon of {recipe.total_steps} steps: nothing is left to train",
            where="init.load = 'all'",
            do="raise objective.tokens, or set it to 'weights+optimizer'",
        )


_SHAPE = (
    "layers",
    "hidden_size",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn_size",
    "activation",
    "norm",
    "positions",
    "qk_norm",
    "bias",
    "tied_embeddings",
)
"""Fields that the weights have been made for. Others, such as rope_theta, may change: that is a way to train on."""


def _other_shape(recipe: Recipe, model: ModelTable) -> list[str]:
    fields = [*_SHAPE, "max_positions"] if model.positions == "learned" else list(_SHAPE)
    pairs = {field: (getattr(model, field), getattr(recipe.model, field)) for field in fields}
    if None not in (known := (model.vocab_size, recipe.vocab_size)):
        pairs["vocab_size"] = known
    return [f"{field} is {old} there, {new} here" for field, (old, new) in pairs.items() if old != new]


def _of_run(path: Path, step: int | None) -> Origin:
    run = RunFolder.open(path)
    steps = saved_steps(run.checkpoints)
    if not steps:
        raise InputError("has no checkpoint yet", where=str(path), do="train it for some steps first")
    if step is not None and step not in steps:
        have = ", ".join(str(s) for s in steps)
        raise InputError(f"has no checkpoint of step {step}; there are: {have}", where=str(path))
    step = steps[0] if step is None else step
    recipe = run.recipe()
    folder = step_folder(run.checkpoints, step)
    model = recipe.model.model_copy(update={"vocab_size": recipe.vocab_size})
    return Origin("run", folder, step, f"{path}@{step}", f"{run.info.id}@{step}", model, recipe=recipe)


def _imported(path: Path) -> Origin:
    where = path / MODEL_FILE
    try:
        model = ModelTable.model_validate(tomllib.loads(where.read_text(encoding="utf-8"))["model"])
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"is damaged ({error})", where=str(where), do="import the folder again") from None
    folder = step_folder(path / "checkpoints", 0)
    return Origin("imported", folder, 0, str(path), str(path), model, companions=path / COMPANIONS)


def _of_checkpoint(path: Path) -> Origin:
    home = path.absolute().parent.parent
    step = path.name.removeprefix("step-")
    if step.isdecimal() and path.absolute().parent.name == "checkpoints":
        if (home / "run.json").exists():
            return _of_run(home, int(step))
        if (home / MODEL_FILE).exists():
            return _imported(home)
    return Origin("checkpoint", path, int(step) if step.isdecimal() else None, str(path), str(path), _model_of(path))


def _model_of(path: Path) -> ModelTable | None:
    """As the manifest tells it; None where that is damaged, which a load will say."""
    try:
        model = read_manifest(path).model
        return ModelTable.model_validate(model) if model else None
    except (InputError, ValueError):
        return None
