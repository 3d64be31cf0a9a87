"""`argosy report`."""

from pathlib import Path
from typing import Annotated, Any

import typer


def _report(
    path: Annotated[Path, typer.Argument(help="Folder of a run, or a folder of runs.", show_default=False)],
    file: Annotated[Path | None, typer.Argument(help="Where --html writes.", show_default="PATH/report.html")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Write the report as a page for browsers.")] = False,
    tolerant: Annotated[
        bool, typer.Option("--tolerant", help="Book what contradicts itself as unattributed instead of refusing.")
    ] = False,
) -> None:
    """Say where the paid device-time of a run went, the biggest leak first; or join the runs of a folder.

    \b
    Example: argosy report runs/quickstart --html
    """
    from rich.console import Console

    from argosy.errors import UsageError

    if file is not None and not html:
        raise UsageError("a FILE goes with --html", where=str(file), do="argosy report RUN --html FILE")
    if not (path / "run.json").exists():
        if html:
            raise UsageError("--html is for one run", where=str(path), do="name the folder of a run")
        from argosy.ledger.fleet import join_runs
        from argosy.ledger.runs import render_runs, runs_json

        fleet = join_runs(path, tolerant=tolerant)
        if as_json:
            _print_json(runs_json(fleet, path))
        else:
            render_runs(fleet, Console())
        return
    from argosy.ledger.report import build_report

    report = build_report(path, tolerant=tolerant)
    if html:
        from argosy.ledger.html.page import write_page

        page = file or path / "report.html"
        write_page(report, page)
    if as_json:
        _print_json(report.to_json())
    elif html:
        typer.echo(f"written: {page}")
    else:
        from argosy.ledger.render import render

        render(report, Console())


def _print_json(content: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("report")(_report)
