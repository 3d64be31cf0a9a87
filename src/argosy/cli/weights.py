"""`argosy weights`: to and from the model folders of Hugging Face."""

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    weights = typer.Typer(help="Take models over from Hugging Face, and hand them on.", no_args_is_help=True)
    weights.command("import")(import_)
    weights.command("export")(export)
    app.add_typer(weights, name="weights")


def import_(
    source: Annotated[Path, typer.Argument(metavar="HF_DIR", help="Folder with config.json and safetensors.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to make.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a checkpoint of Argosy's own from a model of Hugging Face (Llama, Qwen2, Qwen3, GPT-2).

    \b
    Example: argosy weights import models/Qwen3-0.6B weights/qwen3-0.6b
    Then:    argosy train RECIPE --from weights/qwen3-0.6b
    """
    from argosy.checkpoint.imports import import_folder

    done = import_folder(source, out)
    if as_json:
        model = done.model.model_dump(mode="json", exclude_none=True)
        found = {"architecture": done.architecture, "parameters": done.parameters, "tensors": done.tensors}
        print(json.dumps({"schema": "argosy.import/1", "folder": str(out), **found, "model": model}))
        return
    print(f"{out}: {done.architecture}, {done.parameters:,} parameters in {done.tensors} tensors")
    print(f"with {', '.join(done.companions) or 'no tokenizer'}; the model table is in {out / 'model.toml'}")


def export(
    source: Annotated[
        str, typer.Argument(metavar="RUN|CHECKPOINT", help="A run (RUN or RUN@STEP), its checkpoint, or an import.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to make.")],
    dtype: Annotated[
        str | None, typer.Option(metavar="fp32|bf16|fp16", help="Convert the weights.", show_default="as stored")
    ] = None,
    shard_mb: Annotated[int, typer.Option(min=1, help="Size of one file of weights in MB.")] = 2000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a folder that AutoModelForCausalLM and AutoTokenizer of `transformers` open.

    \b
    Example: argosy weights export runs/quickstart models/quickstart --dtype bf16
    """
    from dataclasses import asdict

    from argosy.checkpoint.export import DTYPES
    from argosy.checkpoint.export import export as write
    from argosy.checkpoint.origin import find_origin
    from argosy.errors import UsageError

    if dtype not in (None, *DTYPES):
        raise UsageError(f"--dtype is {', '.join(DTYPES)}, not {dtype}")
    origin = find_origin(source)
    done = write(
        origin,
        out,
        dtype=dtype,
        shard_bytes=shard_mb * 1_000_000,
        say=lambda line: typer.echo(line, err=True),
    )
    if as_json:
        print(json.dumps({"schema": "argosy.export/1", **asdict(done), "folder": str(out), "step": origin.step}))
        return
    tokenizer = "with its tokenizer" if done.tokenizer else "without a tokenizer"
    print(f"{out}: {done.architecture}, {done.parameters:,} parameters, {done.dtype}, {tokenizer}")
