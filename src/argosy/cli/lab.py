"""`argosy lab`: what will come out, is the gain real, where should the next dollar go."""

from pathlib import Path
from typing import Annotated, Any

import typer

_app = typer.Typer(help="Fits, forecasts and comparisons with honest intervals.", no_args_is_help=True)

Data = Annotated[Path, typer.Argument(help="CSV or Parquet file of results.", show_default=False)]
X = Annotated[
    str, typer.Option("--x", help="Axes: N,D (with U or epochs beside them) or one column, as ROLE[=COLUMN].")
]
Y = Annotated[str, typer.Option("--y", help="Column of the final loss.")]
Group = Annotated[str | None, typer.Option("--group", help="Columns whose values are different recipes.")]
Where = Annotated[list[str] | None, typer.Option("--where", help="Keep rows with e.g. flops<=1e21 or size=1B|3B.")]
Best = Annotated[bool, typer.Option("--best", help="Keep only the best run of each configuration (a sweep).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(_app, name="lab")


@_app.command("fit")
def fit(
    data: Data,
    x: X = "N,D",
    y: Y = "loss",
    group: Group = None,
    where: Where = None,
    predict: Annotated[
        list[str] | None, typer.Option(help="Point to forecast: N=1e9,D=2e10, or C=1e21 for the optimal run.")
    ] = None,
    best: Best = False,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples for parameters and optimum.", min=100)] = 1000,
    as_json: AsJson = False,
) -> None:
    r"""Fit scaling laws and forecast, with intervals from back-tests inside the data.

    \b
    argosy lab fit results.csv --x N,D --y loss --predict N=1e9,D=2e10
    """
    from argosy.lab.answer import answer, fit_table

    table = _table(data, where)
    fits = fit_table(table, x.split(","), y, group=_names(group), predict=predict or (), best=best)
    content = answer(fits, table, resamples=resamples)
    if as_json:
        _print(content)
        return
    from argosy.lab.text import print_fit

    print_fit(content)


@_app.command("backtest")
def backtest(
    data: Data,
    x: X = "N,D",
    y: Y = "loss",
    group: Group = None,
    where: Where = None,
    train: Annotated[
        list[str] | None, typer.Option(help="Rows known to the forecaster; default: rolling origins.")
    ] = None,
    test: Annotated[list[str] | None, typer.Option(help="Rows to forecast.")] = None,
    best: Best = False,
    as_json: AsJson = False,
) -> None:
    r"""Forecast runs that have already happened, and say how often the intervals held.

    \b
    argosy lab backtest results.csv --x N,D --y loss --train "C<=1e21" --test "C>1e21"
    """
    from argosy.errors import UsageError
    from argosy.lab.backtest import answer, backtest_table

    if bool(train) != bool(test):
        raise UsageError("--train and --test belong together", do="give both, or neither for rolling origins")
    table = _table(data, where)
    scored = backtest_table(table, x.split(","), y, group=_names(group), train=train or (), test=test or (), best=best)
    content = answer(scored, table)
    if as_json:
        _print(content)
        return
    from argosy.lab.text import print_backtest

    print_backtest(content)


def _table(data: Path, where: list[str] | None) -> Any:
    from argosy.lab.table import read_table

    return read_table(data).filter(where or ())


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


def _print(content: Any) -> None:
    import orjson

    typer.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode())
