"""`argosy recipe check | show | new | explain`."""

from pathlib import Path
from typing import Annotated

import typer

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="Recipe file (TOML).", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override a field; may be repeated.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def register(app: typer.Typer) -> None:
    """Add the `recipe` commands to `app`."""
    recipe = typer.Typer(help="Check, show, write and explain recipes.", no_args_is_help=True)
    recipe.command("check")(check)
    recipe.command("show")(show)
    recipe.command("new")(new)
    recipe.command("explain")(explain)
    app.add_typer(recipe, name="recipe")


def check(
    path: RecipePath,
    sets: Sets = None,
    nproc: Annotated[
        int | None, typer.Option(min=1, help="Also check that it fits this many ranks.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Say whether a recipe is right, and what it amounts to.

    \b
    Example: argosy recipe check recipes/tiny.toml --set batch.tokens=4096 --nproc 2
    """
    from argosy.layout.fits import check_batch, check_model
    from argosy.layout.layout import Layout
    from argosy.recipe.flops import model_flops_per_token, parameter_count
    from argosy.recipe.hashes import hashes
    from argosy.recipe.load import load_recipe

    recipe = load_recipe(path, sets or ())
    layout = None
    if nproc is not None:
        layout = Layout.for_recipe(recipe, nproc)
        check_model(layout, recipe.model, recipe.data.sequence_length, recipe.vocab_size)
        check_batch(layout, recipe.batch_sequences)
    vocab = recipe.vocab_size
    parameters = flops = None
    if vocab is not None:
        parameters = parameter_count(recipe.model, vocab)
        flops = model_flops_per_token(recipe.model, vocab, recipe.data.sequence_length)
    marks = hashes(recipe)
    if json:
        import json as json_module

        result = {
            "schema": 1,
            "recipe": str(path),
            "parameters": parameters,
            "flops_per_token": flops,
            "steps": recipe.total_steps,
            "tokens": recipe.objective.tokens,
            "batch_sequences": recipe.batch_sequences,
            "layout": layout and json_module.loads(layout.to_json()),
            "recipe_hash": marks.recipe_hash,
            "learning_hash": marks.learning_hash,
            "running_hash": marks.running_hash,
        }
        print(json_module.dumps(result))
        return
    size = f"{parameters:,} parameters" if parameters is not None else "parameters unknown before the tokenizer is read"
    total = f", {flops * recipe.objective.tokens:.3g} FLOP" if flops is not None else ""
    print(f"{path} is right: {size}")
    print(f"{recipe.total_steps:,} steps of {recipe.batch.tokens:,} tokens = {recipe.objective.tokens:,} tokens{total}")
    if layout is not None:
        degrees = ", ".join(f"{axis} {size}" for axis, size in layout.axis_sizes.items() if size > 1) or "one rank"
        print(f"on {nproc} ranks: {degrees}; {recipe.batch_sequences // layout.data_ranks} sequences per rank and step")
    print(f"recipe {marks.recipe_hash[:12]}, learns {marks.learning_hash[:12]}, runs {marks.running_hash[:12]}")


def show(
    path: RecipePath,
    sets: Sets = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="With presets and defaults filled in.")] = False,
    json: Json = False,
) -> None:
    """Print a recipe with its overrides, as TOML.

    \b
    Example: argosy recipe show recipes/tiny.toml --resolved --set model.layers=8
    """
    import tomli_w

    from argosy.recipe.load import dump_toml, load_recipe, merge, read_text

    recipe = load_recipe(path, sets or ())
    if json:
        import json as json_module

        tree = recipe.model_dump(mode="json", by_alias=True) if resolved else merge(read_text(path), sets or ())
        print(json_module.dumps({"schema": 1, "recipe": tree}, default=str))
        return
    text = dump_toml(recipe) if resolved else tomli_w.dumps(merge(read_text(path), sets or ()))
    print(text, end="")


def new(
    file: Annotated[
        Path | None, typer.Argument(help="File to write; without one it is printed.", show_default=False)
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Parameters (25M, 8B) or a preset.", show_default="argosy-3m")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="'stdlib', or a folder of `argosy data build`.", show_default="stdlib")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="'2B tokens', '12h' of one device, '50 USD'.", show_default="20 tokens per parameter"),
    ] = None,
    price: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Price of one device per hour.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Write a first recipe with every line explained; on a terminal it asks for what is not given.

    \b
    Example: argosy recipe new mine.toml --size 25M --data stdlib --budget "50M tokens"
    """
    import sys

    from argosy.errors import InputError, UsageError
    from argosy.recipe.new import BUDGET, DATA, SIZE, new_recipe

    if file is not None and file.exists():
        raise UsageError("exists already", where=str(file), do="name another file, or remove it")
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not json

    def chosen(given: str | None, question: str, default: str) -> str:
        if given is not None:
            return given
        return str(typer.prompt(question, default=default)) if asks else default

    text = new_recipe(
        file.stem if file else "new",
        chosen(size, "Size (such as 25M, or a preset)", SIZE),
        chosen(data, "Data (stdlib, or a folder of `argosy data build`)", DATA),
        chosen(budget, "Budget (such as 2B tokens, 12h, 50 USD)", BUDGET),
        price,
    )
    if file is not None:
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(file)) from None
    if json:
        import json as json_module
        import tomllib

        where = None if file is None else str(file)
        print(json_module.dumps({"schema": 1, "file": where, "recipe": tomllib.loads(text)}))
    elif file is None:
        print(text, end="")
    else:
        print(f"{file} is written; train it with  argosy train {file}")


def explain(
    key: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE[.KEY]]", help="A field or a table; empty for all.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Say what a field of the recipe means, its unit, its default and what a change of it does.

    \b
    Example: argosy recipe explain schedule.decay_share
    """
    from argosy.recipe.explain import find, sentence

    found = find(key)
    if json:
        import json as json_module
        from dataclasses import asdict

        print(json_module.dumps({"schema": 1, "fields": [asdict(knob) for knob in found]}, default=str))
        return
    print("\n\n".join(sentence(knob) for knob in found))
