"""`argosy incidents`."""

import json
from pathlib import Path
from typing import Annotated

import typer


def _incidents(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", show_default=False)],
    number: Annotated[int | None, typer.Option("--show", help="All that is known of one, with its stacks.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all records as JSON.")] = False,
) -> None:
    """List the faults of a run: first cause, detection, what was done, what it cost.

    \b
    Example: argosy incidents runs/quickstart
    """
    from argosy.errors import UsageError
    from argosy.registry.run_folder import RunFolder
    from argosy.resilience.incident import read_incidents
    from argosy.resilience.incident_text import details, table

    folder = RunFolder.open(run)
    found = read_incidents(folder.incidents)
    if number is not None:
        found = [incident for incident in found if incident.number == number]
        if not found:
            raise UsageError(f"there is no incident {number}", where=str(run), do=f"list them: argosy incidents {run}")
    if as_json:
        print(json.dumps({"schema": "argosy.incidents/1", "incidents": [one.to_json_object() for one in found]}))
    elif number is not None:
        print(details(found[0]))
    else:
        from rich.console import Console

        Console().print(table(found, folder.recipe().budget.currency) if found else "no incident: nothing went wrong")


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("incidents")(_incidents)
