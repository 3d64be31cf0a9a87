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
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Run one step of one rank on tensors without values; train nothing."),
    ] = False,
    world_size: Annotated[
        int | None, typer.Option(help="Ranks that a dry run stands for.", show_default="1", min=1)
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Which of them it runs.", show_default="0", min=0)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, progress on stderr.")] = False,
) -> None:
    """Train a recipe; the same command continues a run that was stopped or killed.

    \b
    Example:
      argosy train recipes/quickstart.toml --nproc 2
      argosy train recipes/tiny.toml --from runs/tiny@40 --new
      argosy train recipes/llama3-70b.toml --dry-run --world-size 4096 --rank 17
    """
    pairs = {"init.from": origin, "init.load": load}
    overrides = [*(sets or ()), *(f"{key}={json.dumps(value)}" for key, value in pairs.items() if value is not None)]
    if dry_run:
        raise typer.Exit(_dry_run(recipe, overrides, world_size or 1, rank or 0, as_json))
    if world_size is not None or rank is not None:
        from argosy.errors import UsageError

        raise UsageError("--world-size and --rank go with --dry-run", do="to start processes, use --nproc")
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


def _dry_run(recipe: Path, overrides: list[str], world_size: int, rank: int, as_json: bool) -> int:
    """Print what the rank would do; exit code 1 when `argosy plan explain` would say otherwise."""
    from argosy.errors import Exit
    from argosy.launch.dry_run import dry_run

    found = dry_run(recipe, overrides, world_size, rank)
    if as_json:
        print(json.dumps(found.to_json()))
    else:
        from rich.console import Console

        from argosy.planner.render_detail import collectives_table, ranks_table

        console = Console()
        console.print(ranks_table((found.told,)))
        console.print(collectives_table(found.told))
        print(
            f"rank {found.rank} of {found.world_size}: built in {found.build_s:.1f} s, a step in {found.step_s:.1f} s"
        )
        calls = sum(found.collectives.values())
        verdict = "as counted above, to the byte" if found.as_told else "not what is counted above"
        print(f"{calls:,} collectives recorded: {verdict}")
    return Exit.DONE if found.as_told else Exit.CHECK_SAYS_NO
