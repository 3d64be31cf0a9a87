"""`argosy simulate`: months of a job under failures, in seconds."""

from pathlib import Path
from typing import Annotated, Any

import typer


def _simulate(
    plan: Annotated[Path | None, typer.Option("--plan", help="plan.json of a run; or give --gpus.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="Size of the job.")] = None,
    failures: Annotated[str, typer.Option("--failures", help="llama3, meta32k, rsc1, …, none, or mtbf:3h.")] = "llama3",
    days: Annotated[float | None, typer.Option("--days", help="Time to simulate [30, or the plan's work].")] = None,
    step_time: Annotated[float, typer.Option("--step-time", help="Seconds of a step (with --gpus).")] = 6.0,
    per_node: Annotated[int, typer.Option("--per-node", min=1, help="GPUs of a node (with --gpus).")] = 8,
    batch_tokens: Annotated[
        str | None, typer.Option("--batch-tokens", help="Tokens of a step, such as 16M (with --gpus).")
    ] = None,
    save: Annotated[str | None, typer.Option("--save", help="A save to storage blocks so long [10s].")] = None,
    save_counts: Annotated[str, typer.Option("--save-counts", help="And counts this long after it began.")] = "60s",
    memory_save: Annotated[
        str | None, typer.Option("--memory-save", help="Also copy to peers' memory; blocks so long, such as 0.05s.")
    ] = None,
    restore: Annotated[str, typer.Option("--restore", help="Loading a checkpoint takes so long.")] = "60s",
    restart: Annotated[
        str | None, typer.Option("--restart", help="From verdict to the first step, without loading [by scale].")
    ] = None,
    spares: Annotated[str, typer.Option("--spares", help="Nodes that wait, paid; auto: by the policy.")] = "auto",
    refill: Annotated[
        str | None, typer.Option("--refill", help="A broken node is replaced after this [when it is repaired].")
    ] = None,
    groups: Annotated[int, typer.Option("--groups", min=1, help="Replica groups; 1: the job restarts whole.")] = 1,
    elastic: Annotated[
        int | None, typer.Option("--elastic", min=1, help="Sequences of a batch: the job may shrink and grow.")
    ] = None,
    slow: Annotated[float, typer.Option("--slow", help="Nodes that become slow, per 1,000 node-days.")] = 0.0,
    domain: Annotated[float, typer.Option("--domain", help="Racks or switches lost, per 1,000 node-days.")] = 0.0,
    storage: Annotated[float, typer.Option("--storage", help="Storage outages, per 1,000 node-days.")] = 0.0,
    price: Annotated[str | None, typer.Option("--price", help="Of a GPU-hour, or a CSV of hour,price.")] = None,
    spot: Annotated[float | None, typer.Option("--spot", help="Capacity is taken back so many times a day.")] = None,
    value_per_day: Annotated[
        float | None,
        typer.Option(
            "--value-per-day", help="What a day earlier is worth [0, or budget.value_per_day of the plan's run]."
        ),
    ] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="Money for such jobs, such as $50M.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="save.every_s=600, or a policy as JSON or a file of it.")
    ] = None,
    sweep: Annotated[
        list[str] | None, typer.Option("--sweep", help="Compare values: spares=0,4,16; several: all combinations.")
    ] = None,
    search: Annotated[bool, typer.Option("--search", help="Find the cheapest policies.")] = False,
    study: Annotated[bool, typer.Option("--study", help="Sensitivity, break-even prices, worth of a minute.")] = False,
    validate: Annotated[bool, typer.Option("--validate", help="Check against known answers instead.")] = False,
    replications: Annotated[int, typer.Option("--replications", min=1, help="Courses to simulate.")] = 50,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Same seed, same dice.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the first course as a run for `argosy report`.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Also write a page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate months of training under failures, and find the policies that lose least.

    \b
    Example: argosy simulate --gpus 16384 --failures llama3 --days 54 --price 2.5 --study
    """
    from rich.console import Console

    from argosy.simulator import render

    if validate:
        from dataclasses import asdict

        from argosy.errors import Exit
        from argosy.simulator.validate import closed_forms, published, run

        verdicts = [run(case, seed) for case in (*closed_forms(), *published())]
        if as_json:
            cases = [{"name": v.case.name, "holds": v.holds, "simulated": asdict(v.useful), "low": v.case.low,
                      "high": v.case.high, "assumed": v.case.assumed} for v in verdicts]  # fmt: skip
            _print_json({"schema": "argosy.simulate.validate/1", "cases": cases})
        else:
            render.render_verdicts(verdicts, Console())
        if not all(v.holds for v in verdicts):
            raise typer.Exit(Exit.CHECK_SAYS_NO)
        return
    from argosy.simulator import options
    from argosy.simulator.answer import Question, answer

    job = options.job(
        plan=plan, gpus=gpus, step_time_s=step_time, batch_tokens=batch_tokens, per_node=per_node, save=save,
        save_counts=save_counts, memory_save=memory_save, restore=restore, restart=restart, refill=refill,
        groups=groups, elastic=elastic, price=price, spot=spot, own_save=save is not None,
    )  # fmt: skip
    faults = options.failures(failures, job, slow=slow, domain=domain, storage=storage)
    scenario = options.scenario(job, faults, spares=spares, days=days, policies=policy or [])
    found = answer(
        scenario,
        Question(
            replications=replications,
            seed=seed,
            value_per_day=options.value(value_per_day, plan),
            budget=options.budget(budget),
            knobs=options.knobs(sweep) if sweep else None,
            searched=search,
            studied=study or html is not None,
        ),
    )
    if out is not None:
        from argosy.simulator.write import write_run

        write_run(found.course, scenario.job, f"simulated {scenario.job.gpus} GPUs", out)
    if html is not None:
        from argosy.simulator.page import write_page

        write_page(found, html)
    if as_json:
        _print_json(found.to_json())
    else:
        render.render(found, Console())
        for what, file in (("run", out), ("page", html)):
            if file is not None:
                typer.echo(f"written: {what} {file}")


def _print_json(content: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode())


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("simulate")(_simulate)
