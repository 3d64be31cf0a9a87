"""`argosy repeat`."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("repeat")(_repeat)


def _repeat(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    into: Annotated[
        Path | None,
        typer.Option(help="Folder of the repetition, kept.", show_default="temporary, removed when all is equal"),
    ] = None,
    band: Annotated[
        float | None,
        typer.Option(
            help="Relative difference of losses allowed on another kind of machine.",
            min=0,
            show_default="that of seeds: of runs beside it that differ in run.seed alone, else 1.1 %",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, progress on stderr.")] = False,
) -> None:
    """Train a run again from its recipe, data and code, and say whether every step comes out as it did.

    Exits with 1 when it does not, naming the first step that differs.

    \b
    Example: argosy repeat runs/quickstart
    """
    from argosy.errors import Exit
    from argosy.launch.repeat import repeat

    found = repeat(run, into, band=band, stream=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(found.to_json())
    else:
        print("\n".join(found.lines()))
    raise typer.Exit(Exit.DONE if found.repeats else Exit.CHECK_SAYS_NO)
