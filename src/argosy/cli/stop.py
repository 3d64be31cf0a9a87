"""`argosy stop`."""

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("stop")(_stop)


def _stop(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    timeout_s: Annotated[float, typer.Option(help="How long to wait for it.", min=0)] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Ask a run that is being trained to save and stop at its next step, and wait until it has.

    \b
    Example:
      argosy stop runs/quickstart
    """
    from argosy.launch.stop import stop

    stopped = stop(run, timeout_s)
    if as_json:
        print(json.dumps(stopped.to_json_object()))
    else:
        saved = f"saved {stopped.checkpoint}" if stopped.checkpoint else "no checkpoint was saved"
        print(f"{stopped.run}: {stopped.reason or 'stopped'}; {saved}")
