"""`argosy plan`: what to run, on what, how split, and what it will take."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add `plan` and its subcommands to `app`."""
    plan = typer.Typer(help="Choose a layout, predict time, memory and cost, and check the predictions.")
    app.add_typer(plan, name="plan")

    @plan.command()
    def validate(
        cases: Annotated[Path, typer.Argument(help="CSV with the columns of a table of measured runs.", exists=False)],
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    ) -> None:
        """Predict every row of a table of measured runs and print how far off the predictions are.

        Needed in each row: gpu, gpus, seq_len, global_batch_sequences, and layers and hidden (or a known model_name).
        Other empty cells are filled by stated rules, which the JSON names per row.

        \b
        Example: argosy plan validate measured_runs.csv --json
        """
        from argosy.planner.cases import read_cases
        from argosy.planner.render import print_validation
        from argosy.planner.validate import Validation

        validation = Validation(read_cases(cases))
        if as_json:
            import orjson

            typer.echo(orjson.dumps(validation.to_json()).decode())
        else:
            print_validation(validation)
