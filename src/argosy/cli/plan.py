"""`argosy plan`: what to run, on what, how split, and what it will take."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

_WORDS = ("search", "explain", "compare", "fit", "validate")


class _SearchByDefault(TyperGroup):
    """`argosy plan X` with an unknown first word means `plan search X`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*_WORDS, "-h", "--help"):
            args = ["search", *args]
        return super().parse_args(ctx, args)


RecipePath = Annotated[Path | None, typer.Argument(help="Recipe file; or give --model.")]
ModelName = Annotated[str | None, typer.Option("--model", help="Preset instead of a recipe, such as llama3-8b.")]
ClusterName = Annotated[str, typer.Option("--cluster", help="64xH100, or a cluster file.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Override a recipe field: table.key=value.")]
Sequence = Annotated[int | None, typer.Option("--sequence", help="Tokens per sequence (with --model).")]
Batch = Annotated[str | None, typer.Option("--batch", help="Tokens per batch, such as 4M (with --model).")]
Precision = Annotated[str, typer.Option("--precision", help="fp32, bf16, fp8 (with --model).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def register(app: typer.Typer) -> None:
    """Add `plan` and its subcommands to `app`."""
    plan = typer.Typer(
        cls=_SearchByDefault, help="Choose a layout, predict time, memory and cost, and check the predictions."
    )
    app.add_typer(plan, name="plan")

    @plan.command()
    def search(
        recipe: RecipePath = None,
        model: ModelName = None,
        cluster: ClusterName = "8xH100",
        tokens: Annotated[str | None, typer.Option("--tokens", help="Horizon, such as 15T.")] = None,
        target_loss: Annotated[float | None, typer.Option("--target-loss", help="Nats per token to reach.")] = None,
        budget: Annotated[str | None, typer.Option("--budget", help="Largest cost, such as '$50k'.")] = None,
        deadline: Annotated[str | None, typer.Option("--deadline", help="Longest time, such as 30d.")] = None,
        spot: Annotated[bool, typer.Option("--spot", help="Pay the spot price and its interruptions.")] = False,
        what_if: Annotated[
            bool, typer.Option("--what-if", help="Also other sizes of cluster, and twice the price.")
        ] = False,
        top: Annotated[int, typer.Option("--top", min=1, help="Plans to print.")] = 5,
        sequence: Sequence = None,
        batch: Batch = None,
        precision: Precision = "bf16",
        sets: Sets = None,
        html: Annotated[Path | None, typer.Option("--html", help="Also write a page.")] = None,
        as_json: AsJson = False,
    ) -> None:
        """Find the best layout of a model on a cluster, with its time, memory, days and cost.

        \b
        Example: argosy plan --model llama3-70b --cluster 256xH100 --tokens 2T --deadline 60d
        """
        from argosy.planner import quantities, render
        from argosy.planner.answer import Goal, answer
        from argosy.planner.answer import what_if as other_sizes

        question, asked = _question(recipe, model, cluster, sequence, batch, precision, sets)
        goal = Goal(
            tokens=quantities.count(tokens, "--tokens") if tokens else None,
            target_loss=target_loss,
            budget=quantities.money(budget, "--budget") if budget else None,
            deadline_s=quantities.duration_s(deadline, "--deadline") if deadline else None,
            spot=spot,
        )
        found = answer(question, asked, goal)
        scales = other_sizes(question, asked, found.tokens) if what_if and found.tokens else []
        if html is not None:
            html.write_text(render.page(found, scales), "utf-8")
        if as_json:
            from dataclasses import asdict

            _print_json(found.to_json(top) | {"what_if": [asdict(scale) for scale in scales]})
        else:
            render.print_answer(found, top, scales)

    @plan.command()
    def explain(
        recipe: RecipePath = None,
        model: ModelName = None,
        cluster: ClusterName = "8xH100",
        layout: Annotated[
            str | None, typer.Option("--layout", help="tp=8,pp=4,…, or best; empty: the recipe's, else the best.")
        ] = None,
        world_size: Annotated[
            int | None, typer.Option("--world-size", min=1, help="Ranks.", show_default="all of the cluster")
        ] = None,
        rank: Annotated[
            int | None,
            typer.Option("--rank", min=0, help="Count for this rank.", show_default="one per pipeline rank"),
        ] = None,
        sequence: Sequence = None,
        batch: Batch = None,
        precision: Precision = "bf16",
        sets: Sets = None,
        as_json: AsJson = False,
    ) -> None:
        """Where one layout's time and memory go: per term, per rank, every collective, and a picture of its pipeline.

        What a rank holds, sends and computes is exact: the same counts as `argosy train --dry-run` records.

        \b
        Example: argosy plan explain --model llama3-8b --cluster 16xH100 --layout tp=2,pp=2
                 argosy plan explain recipes/llama3-8b-node.toml --set layout.tp=2 --world-size 16 --rank 3
        """
        from argosy.planner.detail import detail
        from argosy.planner.render_detail import print_detail

        question, asked = _question(recipe, model, cluster, sequence, batch, precision, sets)
        found = detail(question, asked if world_size is None else asked.resized(world_size), layout, rank)
        _print_json(found.to_json()) if as_json else print_detail(found)

    @plan.command()
    def compare(
        first: Annotated[str, typer.Argument(help="Layout, such as tp=8,pp=2.")],
        second: Annotated[str, typer.Argument(help="Layout, such as tp=4,pp=4.")],
        recipe: Annotated[Path | None, typer.Option("--recipe", help="Recipe file; or give --model.")] = None,
        model: ModelName = None,
        cluster: ClusterName = "8xH100",
        sequence: Sequence = None,
        batch: Batch = None,
        precision: Precision = "bf16",
        sets: Sets = None,
        as_json: AsJson = False,
    ) -> None:
        """Two layouts side by side, term by term.

        \b
        Example: argosy plan compare tp=8 tp=4,pp=2 --model llama3-70b --cluster 64xH100
        """
        from argosy.planner import render
        from argosy.planner.detail import detail

        question, asked = _question(recipe, model, cluster, sequence, batch, precision, sets)
        one, other = (detail(question, asked, text) for text in (first, second))
        if as_json:
            _print_json({"schema": 1, "plans": [one.to_json(), other.to_json()]})
        else:
            render.print_pair(one, other)

    @plan.command()
    def fit(
        recipe: RecipePath = None,
        model: ModelName = None,
        cluster: ClusterName = "8xH100",
        sequence: Sequence = None,
        batch: Batch = None,
        precision: Precision = "bf16",
        sets: Sets = None,
        as_json: AsJson = False,
    ) -> None:
        """Does it fit, how tightly, why not, and what would help. Exit code 1 when it does not.

        \b
        Example: argosy plan fit --model llama3-70b --cluster 8xH100
        """
        from argosy.errors import Exit
        from argosy.planner import render
        from argosy.planner.fits import check_fit

        question, asked = _question(recipe, model, cluster, sequence, batch, precision, sets)
        verdict = check_fit(question, asked)
        _print_json(verdict.to_json()) if as_json else render.print_fit(verdict)
        if not verdict.fits:
            raise typer.Exit(Exit.CHECK_SAYS_NO)

    @plan.command()
    def validate(
        cases: Annotated[Path, typer.Argument(help="CSV with the columns of a table of measured runs.")],
        as_json: AsJson = False,
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
        _print_json(validation.to_json()) if as_json else print_validation(validation)


def _question(
    recipe: Path | None,
    model: str | None,
    cluster: str,
    sequence: int | None,
    batch: str | None,
    precision: str,
    sets: list[str] | None,
) -> tuple[Any, Any]:
    """(question, cluster) from the options that all subcommands share."""
    from argosy.errors import UsageError
    from argosy.hardware.cluster_file import load_cluster
    from argosy.planner import quantities, question

    asked = load_cluster(cluster)
    if (recipe is None) == (model is None):
        raise UsageError("give a recipe or --model", do="argosy plan --model llama3-8b --cluster 64xH100")
    if recipe is not None:
        return question.load(recipe, tuple(sets or ())), asked
    tokens = quantities.count(batch, "--batch") if batch else None
    assert model is not None
    return (
        question.from_preset(
            model,
            accelerators=asked.count,
            sequence_length=sequence,
            batch_tokens=tokens,
            dtype=precision,
            tokens=None,
        ),
        asked,
    )


def _print_json(content: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY).decode())
