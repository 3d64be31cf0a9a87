"""`argosy train`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("train")(_train)


def _train(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (TOML).", show_default=False)],
    nproc: Annotated[
        int | None, typer.Option(help="Processes to start.", show_default="all GPUs, else 1", min=1)
    ] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/NAME")] = None,
    new: Annotated[bool, typer.Option("--new", help="Start a new run even if there is one: in NAME-2, …")] = False,
    origin: Annotated[
        str | None,
        typer.Option("--from", metavar="RUN[@STEP]|DIR", help="Start from these weights: short for init.from."),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(metavar="weights|weights+optimizer|all", help="What to take from there: short for init.load."),
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override one key of the recipe.")
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(metavar="tensorboard|wandb|mlflow", help="Mirror the journal to a tracker; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, progress on stderr.")] = False,
) -> None:
    """Train a recipe; the same command continues a run that was stopped or killed.

    \b
    Example:
      argosy train recipes/quickstart.toml --nproc 2
      argosy train recipes/tiny.toml --from runs/tiny@40 --new
    """
    pairs = {"init.from": origin, "init.load": load}
    overrides = [*(sets or ()), *(f"{key}={json.dumps(value)}" for key, value in pairs.items() if value is not None)]
    from argosy.launch.external import assigned, train_assigned

    place = assigned()
    if place is not None:  # started by torchrun or srun, as one of several ranks
        if track:
            from argosy.errors import UsageError

            raise UsageError(
                "there is no launcher under torchrun and srun that could start a mirror",
                where="--track",
                do="run `python -m argosy.integrations.mirror RUN ATTEMPT TRACKER` beside it",
            )
        raise typer.Exit(train_assigned(place, recipe, overrides, run_dir))

    from argosy.launch.local import train
    from argosy.launch.tracked import TrackedLine

    if track:
        from argosy.integrations.trackers import check

        check(track)
    with TrackedLine(sys.stderr if as_json else sys.stdout, track or ()) as live:
        outcome = train(recipe, overrides, nproc, run_dir, new=new, live=live)
    for line in outcome.said:
        live.say(line)
    if as_json:
        print(outcome.to_json())
    raise typer.Exit(outcome.exit)
