"""`argosy drill`."""

import json
import random
import sys
from pathlib import Path
from typing import Annotated

import typer


def _drill(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (TOML); made short for the drill.", show_default=False)],
    fault: Annotated[list[str] | None, typer.Option(help="Id of the catalogue, such as F01; may be repeated.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All faults that can be made on one machine.")] = False,
    soak: Annotated[str | None, typer.Option(help="Kill ranks at random for so long, such as 30m.")] = None,
    mean_gap: Annotated[
        str, typer.Option(help="Mean time between kills of a soak; 0: none, so that each alarm is a false one.")
    ] = "60s",
    nproc: Annotated[int, typer.Option(help="Ranks.", min=2)] = 4,
    steps: Annotated[int, typer.Option(help="Steps of a trial.", min=20)] = 30,
    into: Annotated[Path, typer.Option(help="Folder for the drill's own runs.")] = Path("drills"),
    seed: Annotated[int | None, typer.Option(help="Draws guilty ranks and steps.", show_default="by chance")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the runs of trials that went well.")] = False,
    consent: Annotated[bool, typer.Option("--yes-break-it", help="The folder may hold something else.")] = False,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override one key of the recipe.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, progress on stderr.")] = False,
) -> None:
    """Break a run on purpose, and check that nothing is lost: before it is trusted with money.

    \b
    Example:
      argosy drill recipes/tiny.toml --fault F01 --fault F02
      argosy drill recipes/tiny.toml --soak 30m --mean-gap 60s
    """
    from argosy.drill import soak as soaking
    from argosy.drill.drill import drill, prepare_folder, table
    from argosy.drill.faults import variants
    from argosy.drill.scene import Stage
    from argosy.errors import UsageError

    if (soak is not None) + bool(fault) + everything != 1:
        raise UsageError("say what to break", where="drill", do="give one of --fault F01, --all, --soak 30m")
    names: list[str | None] = [*fault] if fault else [None]
    chosen = [variant for name in names for variant in variants(name)]  # a wrong name is told before work
    prepare_folder(into, consent=consent)
    stage = Stage(into.resolve(), recipe.resolve(), nproc, steps, tuple(sets or ()))
    drawn = random.SystemRandom().randrange(10**6) if seed is None else seed
    stream = sys.stderr if as_json else sys.stdout
    if soak is not None:
        found = soaking.run(stage, soaking.seconds(soak), soaking.seconds(mean_gap, least=0), drawn)
        print(json.dumps(found.to_json_object()) if as_json else "\n".join(found.lines()))
        raise typer.Exit(found.exit)
    result = drill(stage, chosen, seed=drawn, keep=keep, say=lambda line: print(line, file=stream, flush=True))
    print(json.dumps(result.to_json_object()) if as_json else "\n".join(table(result)))
    raise typer.Exit(result.exit)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("drill")(_drill)
