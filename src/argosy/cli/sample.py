"""`argosy sample`."""

import json
from pathlib import Path
from typing import Annotated

import typer


def sample(
    run: Annotated[Path, typer.Argument(help="Folder of the run.", show_default=False)],
    prompt: Annotated[str, typer.Option(help="Text to continue; empty starts a document.")] = "",
    tokens: Annotated[int, typer.Option(help="Tokens to write at most.", min=1)] = 128,
    temperature: Annotated[float, typer.Option(help="0 always takes the most likely token.", min=0)] = 0.8,
    top_k: Annotated[int, typer.Option(help="Draw from this many most likely tokens; 0 draws from all.", min=0)] = 50,
    seed: Annotated[int, typer.Option(help="The same seed gives the same text.")] = 0,
    step: Annotated[int | None, typer.Option(help="Checkpoint to use.", show_default="newest whole one")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Continue a text with the model of a run.

    \b
    Example: argosy sample runs/quickstart --prompt "def read_file(path):"
    """
    from argosy.training.sample import open_speaker

    speaker = open_speaker(run, step)
    text = speaker.continue_text(prompt, tokens, temperature=temperature, top_k=top_k or None, seed=seed)
    if as_json:
        print(json.dumps({"schema": "argosy.sample/1", "step": speaker.step, "prompt": prompt, "text": text}))
    else:
        print(prompt + text)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(sample)
