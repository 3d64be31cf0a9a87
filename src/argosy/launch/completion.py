"""What a recipe with `init.from` leaves open: the step, the model and the tokenizer are those of the weights."""

from pathlib import Path
from typing import Any

import tomli_w

from argosy.checkpoint.origin import TOKENIZER_FILE, Origin, check_load, find_origin, split_step
from argosy.data.files import read_json
from argosy.errors import UsageError
from argosy.recipe.load import parse_recipe
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder


def completed(recipe: Recipe, folder: Path) -> Recipe:
    """`recipe` with the newest step pinned and its unset model fields and tokenizer filled in from `init.from`.

    A run that is in `folder` already has made these choices; they stand, whatever has become of the origin since.
    Raises InputError when there is nothing to start from, UsageError when it cannot be loaded into the recipe.
    """
    if recipe.init.from_ is None:
        return recipe
    if (was := _run_from_the_same(recipe, folder)) is not None:
        return _filled(recipe, was.init.from_, _dump(was)["model"], _dump(was)["tokenizer"])
    origin = find_origin(recipe.init.from_)
    if origin.folder.absolute().is_relative_to(folder.absolute()):
        raise UsageError("a run cannot start from itself", where=str(folder), do="name another --run-dir, or add --new")
    model = origin.model.model_dump(mode="json", exclude_none=True) if origin.model else {}
    recipe = _filled(recipe, origin.name, model, _tokenizer(_first_source(recipe), origin))
    check_load(recipe, origin)
    return recipe


def parent_of(recipe: Recipe) -> str | None:
    """What run.json says of where the weights came from; see :class:`argosy.checkpoint.origin.Origin`."""
    return find_origin(recipe.init.from_).parent if recipe.init.from_ is not None else None


def _first_source(recipe: Recipe) -> str:
    """All sources of a mixture have one tokenizer."""
    return recipe.data.sources[0].folder if recipe.data.sources else recipe.data.source


def _tokenizer(source: str, origin: Origin) -> dict[str, Any]:
    """That of the data where it is built already, else that of the weights; training compares the two."""
    if source == "stdlib":
        return origin.tokenizer.model_dump(mode="json", exclude_none=True) if origin.tokenizer else {}
    folder = Path(source).expanduser()
    built = read_json(folder / "dataset.json", "argosy.dataset/1")["tokenizer"]
    if built["kind"] == "file":
        return {"kind": "file", "path": str(folder / TOKENIZER_FILE)}
    return {"kind": built["kind"], "vocab_size": built["asked_vocab_size"]}


def _run_from_the_same(recipe: Recipe, folder: Path) -> Recipe | None:
    """The recipe of the run in `folder`, if it started from what `recipe` names."""
    if recipe.init.from_ is None or not (folder / "run.json").exists():
        return None
    was = RunFolder.open(folder).recipe()
    if was.init.from_ is None:
        return None
    (path, step), (old_path, old_step) = split_step(recipe.init.from_), split_step(was.init.from_)
    return was if path == old_path and step in (None, old_step) else None


def _filled(recipe: Recipe, origin: str | None, model: dict[str, Any], tokenizer: dict[str, Any]) -> Recipe:
    tables = _dump(recipe)
    said = recipe.model.model_fields_set
    tables["init"]["from"] = origin
    tables["model"] = model | {key: value for key, value in tables["model"].items() if key in said or not model}
    if tokenizer and "tokenizer" not in recipe.model_fields_set:
        tables["tokenizer"] = tokenizer
    where = f"recipe with the model of {origin}"
    try:
        return parse_recipe(tomli_w.dumps(tables), where=where)
    except UsageError as error:
        reason = error.what.removeprefix(where).partition(": ")[2]  # without the line of a text that nobody wrote
        if not reason.startswith("model"):
            raise
        raise UsageError(
            f"does not go together with the model of {origin}: {reason}",
            where="the recipe's [model] or [tokenizer]",
            do="leave both tables out to take those of init.from",
        ) from None


def _dump(recipe: Recipe) -> dict[str, Any]:
    return recipe.model_dump(mode="json", by_alias=True, exclude_none=True)
