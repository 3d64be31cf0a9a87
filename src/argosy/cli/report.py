"""`argosy report`."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    path: Annotated[Path, typer.Argument(help="Folder of a run, or a folder of runs.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    tolerant: Annotated[
        bool, typer.Option("--tolerant", help="Book what contradicts itself as unattributed instead of refusing.")
    ] = False,
) -> None:
    """Say where the paid device-time of a run went, the biggest leak first; or list the runs of a folder.

    \b
    Example: argosy report runs/quickstart
    """
    from rich.console import Console

    from argosy.ledger.render import render
    from argosy.ledger.report import build_report
    from argosy.ledger.runs import list_runs, render_runs, runs_json

    is_run = (path / "run.json").exists()
    if is_run:
        one = build_report(path, tolerant=tolerant)
        content = one.to_json()
    else:
        rows = list_runs(path, tolerant=tolerant)
        content = runs_json(rows, path)
    if as_json:
        import orjson

        typer.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())
    elif is_run:
        render(one, Console())
    else:
        render_runs(rows, Console())


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(report)
