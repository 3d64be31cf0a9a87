"""`argosy report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from argosy.ledger.report_model import Report


def _report(
    path: Annotated[Path, typer.Argument(help="Folder of a run, or a folder of runs.", show_default=False)],
    file: Annotated[Path | None, typer.Argument(help="Where --html writes.", show_default="PATH/report.html")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Write the report as a page for browsers.")] = False,
    diff: Annotated[
        Path | None, typer.Option(help="Compare with this run: what it takes more, per kept token.", metavar="RUN")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only what was paid from this moment on (ISO 8601, UTC unless it says).")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only what was paid before this moment.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the sampled steps as a trace for Perfetto.", metavar="FILE")
    ] = None,
    prometheus: Annotated[
        Path | None, typer.Option(help="Write the figures as a text file for Prometheus.", metavar="FILE")
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Write compact/ of a run that is over: its reports are then quick.")
    ] = False,
    tolerant: Annotated[
        bool, typer.Option("--tolerant", help="Book what contradicts itself as unattributed instead of refusing.")
    ] = False,
) -> None:
    """Say where the paid device-time of a run went, the biggest leak first; or join the runs of a folder.

    \b
    Example: argosy report runs/quickstart --html
             argosy report runs/before --diff runs/after
    """
    from argosy.errors import UsageError

    if file is not None and not html:
        raise UsageError("a FILE goes with --html", where=str(file), do="argosy report RUN --html FILE")
    if not (path / "run.json").exists():
        if html or compact or diff or trace or prometheus or since or until:
            raise UsageError("is a folder of runs", where=str(path), do="name the folder of one run for these options")
        _runs(path, tolerant, as_json)
        return
    from argosy.ledger.period import period
    from argosy.ledger.report import build_report, compact_run

    if compact:
        made = compact_run(path)
        typer.echo(f"written: {made.folder} ({made.bytes_per_record:.1f} bytes per step and rank)", err=as_json)

    report = build_report(path, tolerant=tolerant, window_ns=period(since, until))
    written = _write(path, report, file or path / "report.html" if html else None, trace, prometheus)
    if diff is not None:
        _compare(report, build_report(diff, tolerant=tolerant), as_json)
    elif as_json:
        _print_json(report.to_json())
    elif written:
        for place in written:
            typer.echo(f"written: {place}")
    else:
        from rich.console import Console

        from argosy.ledger.render import render

        render(report, Console())


def _runs(path: Path, tolerant: bool, as_json: bool) -> None:
    from rich.console import Console

    from argosy.ledger.fleet import join_runs
    from argosy.ledger.runs import render_runs, runs_json

    fleet = join_runs(path, tolerant=tolerant)
    if as_json:
        _print_json(runs_json(fleet, path))
    else:
        render_runs(fleet, Console())


def _write(path: Path, report: "Report", page: Path | None, trace: Path | None, prometheus: Path | None) -> list[Path]:
    """Write what was asked for; the files."""
    from argosy.ledger.files import write_text

    if page is not None:
        from argosy.ledger.html.page import write_page

        write_page(report, page)
    if trace is not None:
        from argosy.ledger.trace import trace_of_run

        write_text(trace, trace_of_run(path))
    if prometheus is not None:
        from argosy.ledger.prometheus import prometheus_text

        write_text(prometheus, prometheus_text(report))
    return [place for place in (page, trace, prometheus) if place is not None]


def _compare(a: "Report", b: "Report", as_json: bool) -> None:
    from rich.console import Console

    from argosy.ledger.diff import compare
    from argosy.ledger.render_diff import render_diff

    found = compare(a, b)
    if as_json:
        _print_json(found.to_json())
    else:
        render_diff(found, Console())


def _print_json(content: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("report")(_report)
