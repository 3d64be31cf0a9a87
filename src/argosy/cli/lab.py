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
Html = Annotated[Path | None, typer.Option("--html", help="Write figures to this file.")]
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
    pair: Annotated[
        str | None, typer.Option(help="Forecast the gap of two arms on matched cells: optimizer=adamw,muon.")
    ] = None,
    best: Best = False,
    html: Html = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples for parameters and optimum.", min=100)] = 1000,
    as_json: AsJson = False,
) -> None:
    r"""Fit scaling laws and forecast, with intervals from back-tests inside the data.

    \b
    argosy lab fit results.csv --x N,D --y loss --predict N=1e9,D=2e10
    """
    from argosy.lab.answer import answer, fit_table

    table = _table(data, where)
    if pair:
        from argosy.lab.tables import gap_answer

        _show(gap_answer(table, x.split(","), y, pair, predict or (), best=best), as_json)
        return
    fits = fit_table(table, x.split(","), y, group=_names(group), predict=predict or (), best=best)
    content = answer(fits, table, resamples=resamples)
    if html:
        from argosy.lab.figures import fit_page

        _write(html, fit_page(fits, data.name))
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
    html: Html = None,
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
    if html:
        from argosy.lab.figures import backtest_page

        _write(html, backtest_page(scored, content["summary"], data.name))
    if as_json:
        _print(content)
        return
    from argosy.lab.text import print_backtest

    print_backtest(content)


@_app.command("schedule")
def schedule(
    data: Data,
    predict: Annotated[list[str], typer.Option(help="Curve to forecast; its rows give steps and rates.")],
    step: Annotated[str, typer.Option(help="Column of the step.")] = "step",
    rate: Annotated[str, typer.Option(help="Column of the learning rate.")] = "lr",
    y: Y = "loss",
    curve: Annotated[str, typer.Option(help="Column that names the curves.")] = "schedule",
    group: Group = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    r"""Forecast the loss under a learning-rate schedule that was never run.

    \b
    argosy lab schedule curves.csv --curve schedule --predict wsd --group model
    """
    from argosy.lab.tables import schedule_answer

    table = _table(data, where)
    content = schedule_answer(table, step=step, rate=rate, y=y, curve=curve, predict=predict, group=_names(group))
    _show(content, as_json)


@_app.command("compare")
def compare(
    data: Data,
    baseline: Annotated[str, typer.Option(help="Arm to beat.")],
    variant: Annotated[str | None, typer.Option(help="Arm to judge; default: every other arm.")] = None,
    arm: Annotated[str, typer.Option(help="Column that names the arms.")] = "arm",
    y: Y = "loss",
    pair: Annotated[str | None, typer.Option(help="Column that pairs runs of both arms, e.g. seed.")] = None,
    minimum: Annotated[float, typer.Option(help="Least gain worth having, in units of the loss.")] = 0.0,
    base_rate: Annotated[float, typer.Option(help="Share of such ideas that are kept.")] = 0.29,
    effect: Annotated[float, typer.Option(help="Usual size of a real gain, in units of the loss.")] = 0.004,
    price: Annotated[float | None, typer.Option(help="Dollars per run, for the cost of more seeds.")] = None,
    margin: Annotated[float | None, typer.Option(help="Also test that the variant is not worse by this much.")] = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    r"""Say whether a gain is the algorithm's or luck's, or how many more seeds would tell.

    \b
    argosy lab compare runs.csv --arm arm --y val_loss --baseline adamw --variant muon --price 12
    """
    from argosy.lab.compare import Prior
    from argosy.lab.tables import compare_answer

    content = compare_answer(
        _table(data, where),
        arm=arm,
        y=y,
        baseline=baseline,
        variant=variant,
        pair=pair,
        prior=Prior(base_rate, effect),
        minimum=minimum,
        price_per_run=price,
        margin=margin,
    )
    _show(content, as_json)


@_app.command("power")
def power(
    gain: Annotated[float, typer.Option(help="Gain that should be found, in units of the loss.")],
    sd: Annotated[float, typer.Option(help="sd of the loss between seeds.", min=0)],
    chance: Annotated[float, typer.Option(help="Chance of finding it.", min=0.05, max=0.999)] = 0.8,
    price: Annotated[float | None, typer.Option(help="Dollars per run.")] = None,
    as_json: AsJson = False,
) -> None:
    r"""Say how many seeds per arm a gain needs.

    \b
    argosy lab power --gain 0.002 --sd 0.0011 --price 12
    """
    from argosy.lab.compare import power as chance_of
    from argosy.lab.compare import seeds_needed

    needed = seeds_needed(gain, sd, chance)
    table = [{"seeds_per_arm": n, "power": chance_of(gain, sd, n)} for n in (2, 3, 4, 6, 8, 12, 16, 24)] if sd else []
    cost = None if needed is None or price is None else 2 * needed * price
    _show({"schema": "argosy.lab.power/1", "seeds_per_arm": needed, "cost": cost, "table": table}, as_json)


@_app.command("replay")
def replay(
    data: Data,
    run: Annotated[str, typer.Option(help="Column that names the runs.")] = "run_id",
    arm: Annotated[str, typer.Option(help="Column that names the arms.")] = "arm",
    step: Annotated[str, typer.Option(help="Column of the step.")] = "step",
    y: Y = "loss",
    planned: Annotated[str | None, typer.Option(help="Column of the planned steps; default: the last one.")] = None,
    eta: Annotated[float, typer.Option(help="Keep one of this many at each rung.", min=1.1)] = 2.0,
    rungs: Annotated[str, typer.Option(help="Fractions of the schedule to judge at.")] = "0.25,0.5",
    margin: Annotated[float | None, typer.Option(help="Also replay: drop what is worse than the best by this.")] = None,
    arms: Annotated[int, typer.Option(help="Arms per campaign.", min=2)] = 8,
    campaigns: Annotated[int, typer.Option(help="Campaigns to draw.", min=20)] = 500,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    r"""Replay early-stopping rules on recorded curves; exit 1 when none may be trusted.

    \b
    argosy lab replay curves.csv --run run_id --arm arm --step step --y val_loss --rungs 0.25,0.5
    """
    from argosy.errors import Exit, UsageError
    from argosy.lab.stopping import Asha, Margin, Rule, SuccessiveHalving
    from argosy.lab.tables import replay_answer

    try:
        fractions = tuple(sorted(float(part) for part in rungs.split(",")))
    except ValueError:
        raise UsageError(f"--rungs {rungs}", do="give fractions like 0.25,0.5") from None
    if not all(0 < fraction < 1 for fraction in fractions):
        raise UsageError(f"--rungs {rungs}", do="give fractions between 0 and 1")
    rules: list[Rule] = [SuccessiveHalving(eta, fractions), Asha(eta, fractions)]
    if margin is not None:
        rules.append(Margin(margin, fractions))
    content = replay_answer(
        _table(data, where), rules, run=run, arm=arm, step=step, y=y, planned=planned, arms=arms, campaigns=campaigns
    )
    _show(content, as_json)
    if not any(rule["trusted"] for rule in content["rules"]):
        raise typer.Exit(Exit.CHECK_SAYS_NO)


@_app.command("worth")
def worth(
    data: Data,
    at: Annotated[str, typer.Option(help="The run that is planned: N=1e9,D=2e10.")],
    price: Annotated[float, typer.Option(help="Dollars per 1e18 FLOPs.")],
    x: X = "N,D",
    y: Y = "loss",
    gain: Annotated[float, typer.Option(help="A gain in nats to be priced.")] = 0.01,
    cost: Annotated[float, typer.Option(help="Dollars that establishing the gain costs.")] = 0.0,
    served: Annotated[float, typer.Option(help="Tokens that the model will serve in its life.")] = 0.0,
    data_price: Annotated[float, typer.Option(help="Dollars per 1e9 unique tokens.")] = 0.0,
    batch: Annotated[float | None, typer.Option(help="Batch in tokens.")] = None,
    critical_batch: Annotated[float | None, typer.Option(help="Critical batch in tokens.")] = None,
    noise: Annotated[float, typer.Option(help="sd of the loss between seeds.")] = 0.001,
    where: Where = None,
    best: Best = False,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    r"""Say where the next dollar goes at a planned run, and what a gain is worth there.

    \b
    argosy lab worth results.csv --at N=1e9,D=2e10 --price 3.5 --gain 0.01 --served 1e12
    """
    from argosy.lab.tables import worth_answer

    content, bars = worth_answer(
        _table(data, where),
        x.split(","),
        y,
        at=at,
        price_per_flop=price / 1e18,
        gain=gain,
        experiment_cost=cost,
        served_tokens=served,
        data_price_per_token=data_price / 1e9,
        batch_tokens=batch,
        critical_batch_tokens=critical_batch,
        noise_sd=noise,
        best=best,
    )
    if html:
        from argosy.lab.figures import tornado
        from argosy.lab.svg import page

        _write(html, page(f"Worth of a gain: {data.name}", [("Tornado", tornado(f"A gain of {gain:g} nats", bars))]))
    _show(content, as_json)


@_app.command("value")
def value(
    data: Data,
    budget: Annotated[float | None, typer.Option(help="Dollars to spend; default: no limit.", min=0)] = None,
    as_json: AsJson = False,
) -> None:
    r"""Rank candidate experiments by expected value per dollar, needs first.

    The table has the columns name, gain, gain_sd, noise_sd, seeds, cost, dollars_per_nat, and may have transfer, needs.

    \b
    argosy lab value ideas.csv --budget 5000
    """
    from argosy.lab.table import read_table
    from argosy.lab.tables import value_answer

    _show(value_answer(read_table(data), budget), as_json)


def _show(content: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _print(content)
        return
    from argosy.lab.text import print_plain

    print_plain(content)


def _write(path: Path, text: str) -> None:
    from argosy.errors import InputError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", where=str(path), do="choose another place") from None


def _table(data: Path, where: list[str] | None) -> Any:
    from argosy.lab.table import read_table

    return read_table(data).filter(where or ())


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


def _print(content: Any) -> None:
    import orjson

    typer.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode())
