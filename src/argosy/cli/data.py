"""`argosy data`: make token data from text, look into it, and prove what a run did with it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from argosy.data.build import Progress, TokenizerSpec
    from argosy.data.chat_template import ChatTemplate
    from argosy.data.prepare import Prepared
    from argosy.recipe.schema import Recipe

JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RECIPE = Annotated[Path, typer.Argument(metavar="RECIPE", help="TOML file.")]
SETS = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a field of the recipe.")]


def register(app: typer.Typer) -> None:
    data = typer.Typer(help="Build token data, look into it, prove what a run did with it.", no_args_is_help=True)
    for command in (build, inspect, verify, sample, mix, audit):
        data.command(command.__name__)(command)
    app.add_typer(data, name="data")


def build(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="Text, JSONL, Parquet or Arrow file (also .gz, .zst), a folder of them, NAME.idx of Megatron-LM, "
            "or an address such as s3://bucket/folder.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to make.")],
    text_field: Annotated[str, typer.Option(help="Field that holds the text of a record.")] = "text",
    id_field: Annotated[
        str | None, typer.Option(help="Field that names a record.", show_default="file and number")
    ] = None,
    loss: Annotated[
        str, typer.Option(metavar="all|response", help="Learn all text, or only what answers the prompts of JSONL.")
    ] = "all",
    prompt_field: Annotated[str, typer.Option(help="With --loss response: field of the prompt.")] = "prompt",
    response_field: Annotated[str, typer.Option(help="With --loss response: field of the answer.")] = "response",
    messages_field: Annotated[
        str, typer.Option(help="With --loss response: or one field with a list of messages.")
    ] = "messages",
    chat_template: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Jinja template of conversations.", show_default="the tokenizer's, or plain"),
    ] = None,
    tokenizer: Annotated[
        str,
        typer.Option(
            metavar="bpe|bytes|FILE|RUN|DIR",
            help="Train a BPE, use raw bytes, or take a tokenizer.json: the file, or that of a run or model folder.",
        ),
    ] = "bpe",
    vocab_size: Annotated[int, typer.Option(min=257, help="Size of a trained BPE in tokens.")] = 4096,
    held_out_share: Annotated[float, typer.Option(help="Share of documents kept for evaluation.")] = 0.05,
    most_rejected: Annotated[
        int, typer.Option(min=0, help="Bad records to set aside in OUT/rejected.jsonl before giving up.")
    ] = 100,
    keep_copies: Annotated[
        bool, typer.Option("--keep-copies", help="Keep documents whose text an earlier one has.")
    ] = False,
    shard_tokens: Annotated[int, typer.Option(min=1, help="Tokens of one file.")] = 1 << 27,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that make tokens.", show_default="one for each core")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Make a data set of token shards from text. Started again after a kill, it goes on after the last whole shard.

    \b
    Example: argosy data build books/ data/books --vocab-size 8192
    Then:    argosy train RECIPE --set data.source=data/books
    Answers: argosy data build qa.jsonl data/qa --loss response --tokenizer runs/quickstart
    """
    from argosy.data.build import Options, build_data_set
    from argosy.data.conversations import Conversations
    from argosy.data.inspect import inspect as describe
    from argosy.data.megatron import MegatronFiles
    from argosy.data.textfiles import TextFiles
    from argosy.data.tokenizer import END_OF_TEXT, Tokenizer
    from argosy.errors import UsageError

    if not 0 < held_out_share < 1:
        raise UsageError(f"--held-out-share is a share between 0 and 1, not {held_out_share}")
    if loss not in ("all", "response"):
        raise UsageError(f"--loss is all or response, not {loss}")
    if chat_template is not None and loss == "all":
        raise UsageError("--chat-template goes with --loss response")
    spec = _tokenizer(tokenizer, vocab_size)
    template: ChatTemplate | None = None
    corpus: TextFiles | Conversations | MegatronFiles = TextFiles(source, text_field, id_field)
    if loss == "response":
        template = _template(chat_template, spec)
        special = (END_OF_TEXT,) if spec.path is None else Tokenizer.load(spec.path).special_tokens
        corpus = Conversations(source, template, prompt_field, response_field, messages_field, special)
        typer.echo(f"chat template: {template.name}", err=True)
    elif MegatronFiles.fits(source):
        if spec.path is None:
            raise UsageError("tokens need the tokenizer that made them", where=source, do="give it with --tokenizer")
        corpus = MegatronFiles(source, Tokenizer.load(spec.path))
    options = Options(
        held_out_share=held_out_share,
        most_rejected=most_rejected,
        keep_copies=keep_copies,
        shard_tokens=shard_tokens,
        chat_template=template.source if template is not None else None,
        workers=workers,
    )
    with _progress() as progress:
        build_data_set(
            corpus,
            out,
            spec,
            options,
            fingerprint=corpus.fingerprint,
            say=lambda line: typer.echo(line, err=True),
            progress=progress,
        )
    _show(describe(out), as_json)


def inspect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder made by `argosy data build`.")],
    as_json: JSON = False,
) -> None:
    """Verify a data set and print its counts, digests and first text.

    \b
    Example: argosy data inspect data/books
    """
    from argosy.data.inspect import inspect as describe

    _show(describe(folder), as_json)


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder made by `argosy data build`.")],
    as_json: JSON = False,
) -> None:
    """Read every file of a data set and compare it with its digest; exit code 66 names the first damaged one.

    \b
    Example: argosy data verify data/books
    """
    from argosy.data.inspect import inspect as describe

    found = describe(folder)
    shards = sum(split["shards"] for split in found["splits"].values())
    tokens = sum(split["tokens"] for split in found["splits"].values())
    if as_json:
        digest = found["digest"]
        print(json.dumps({"schema": 1, "folder": str(folder), "digest": digest, "shards": shards, "tokens": tokens}))
    else:
        print(f"{folder}: {shards} shards, {tokens:,} tokens, all digests right; digest {found['digest']}")


def sample(
    recipe: RECIPE,
    first: Annotated[int, typer.Option(min=0, help="Global index of the first sample.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 3,
    sets: SETS = None,
    as_json: JSON = False,
) -> None:
    """Print the samples that a run of RECIPE trains on at some place, as text.

    \b
    Example: argosy data sample recipes/quickstart.toml --first 1000000000
    """
    from argosy.data.look import samples

    found = samples(*_opened(recipe, sets), first, count)
    if as_json:
        print(json.dumps({"schema": 1, "samples": found}))
        return
    for one in found:
        documents = "" if one["documents"] is None else f", {one['documents']} documents"
        source = f"{one['source']} " if one["source"] else ""
        print(
            f"── index {one['index']}: {source}sample {one['sample']}, epoch {one['epoch']}{documents}, "
            f"{one['loss_tokens']} tokens with loss, {one['pad_tokens']} padding"
        )
        print(one["text"])


def mix(recipe: RECIPE, sets: SETS = None, as_json: JSON = False) -> None:
    """Print what a run of RECIPE will draw from each source: weights, samples, epochs, repeats.

    \b
    Example: argosy data mix recipe.toml
    """
    from argosy.data.look import mix as foresee

    found = foresee(*_opened(recipe, sets))
    if as_json:
        print(json.dumps(found))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table

    numbers = [Column(name, justify="right") for name in ("samples", "drawn", "target", "epochs", "repeated")]
    table = Table("source", *numbers, box=box.SIMPLE_HEAD)
    for one in found["sources"]:
        table.add_row(
            one["name"],
            f"{one['samples']:,}",
            f"{one['drawn']:,}",
            f"{one['target']:,.1f}",
            f"{one['epochs']:.2f}",
            f"{one['repeated']:.1%}",
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{found['samples']:,} samples, {found['tokens']:,} tokens")
    for place, (token, _) in enumerate(found["sources"][0]["weights"]):
        shares = ", ".join(f"{one['name']} {one['weights'][place][1]:.4g}" for one in found["sources"])
        console.print(f"weights from token {token:,} on: {shares}")
    console.print(table)
    console.print(f"no source is ever further from its target than {found['furthest']:.2f} samples")


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    as_json: JSON = False,
) -> None:
    """Prove from a run's records that its kept steps used each sample once per epoch; exit code 1 if they did not.

    \b
    Example: argosy data audit runs/quickstart
    """
    from dataclasses import asdict

    from argosy.data.audit_run import audit_run
    from argosy.errors import Exit
    from argosy.registry.run_folder import RunFolder

    found = audit_run(RunFolder.open(run))
    if as_json:
        print(json.dumps({"schema": 1, "clean": not found.faults, **asdict(found)}))
        raise typer.Exit(Exit.CHECK_SAYS_NO if found.faults else Exit.DONE)
    for leg in found.legs:
        position, end = leg.position, leg.after()
        print(
            f"attempt {leg.attempt}, {leg.world} rank{'s' * (leg.world > 1)}: steps {leg.first} to {leg.stop - 1}, "
            f"samples {position.index} to {end.index - 1}"
        )
    for one in found.sources:
        print(f"{one['name'] or 'data'}: {one['used']:,} of {one['samples']:,} samples, {one['epochs']:.2f} epochs")
    for first, count in found.skipped:
        print(f"left out on purpose: {count} samples from index {first} on")
    for step in found.not_applied:
        print(f"step {step}: its update was not finite, its samples taught nothing")
    for fault in found.faults:
        print(f"FAULT: {fault}")
    verdict = "NOT CLEAN" if found.faults else "clean: each sample once per epoch"
    print(f"{found.steps} kept steps, {found.confirmed} of them confirmed by the ranks' own sums: {verdict}")
    raise typer.Exit(Exit.CHECK_SAYS_NO if found.faults else Exit.DONE)


def _opened(path: Path, sets: list[str] | None) -> "tuple[Recipe, Prepared]":
    from argosy.data.prepare import prepare
    from argosy.recipe.load import load_recipe

    recipe = load_recipe(path, sets or [])
    return recipe, prepare(recipe, say=lambda line: typer.echo(line, err=True))


@contextmanager
def _progress() -> "Iterator[Progress]":
    """A bar on a terminal, a line each ten seconds elsewhere."""
    import sys
    import time

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    if sys.stderr.isatty():
        bar = Progress(
            "tokens",
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        with bar:
            task = bar.add_task("tokens", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    said_s = time.monotonic()

    def say(done: int, total: int) -> None:
        nonlocal said_s
        if time.monotonic() - said_s >= 10:
            said_s = time.monotonic()
            typer.echo(f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB of text are tokens", err=True)

    yield say


def _template(file: Path | None, spec: "TokenizerSpec") -> "ChatTemplate":
    from argosy.data.chat_template import ChatTemplate

    if file is not None:
        return ChatTemplate.read(file, spec.path)
    return ChatTemplate.beside(spec.path) if spec.path is not None else ChatTemplate()


def _tokenizer(name: str, vocab_size: int) -> "TokenizerSpec":
    from argosy.checkpoint.origin import find_origin
    from argosy.checkpoint.tokenizers import tokenizer_file
    from argosy.data.build import TokenizerSpec

    if name == "bpe":
        return TokenizerSpec("bpe", vocab_size)
    if name == "bytes":
        return TokenizerSpec("bytes")
    path = Path(name)
    if not path.is_file() and (path.suffix != ".json" or path.is_dir()):
        path = tokenizer_file(find_origin(name))
    return TokenizerSpec("file", path=path)


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    source, tokenizer, baselines = found["source"], found["tokenizer"], found["baselines"]
    table = Table(
        "",
        "documents",
        "tokens",
        "bytes",
        "bytes/token",
        "shards",
        Column("digest", overflow="fold"),
        box=box.SIMPLE_HEAD,
    )
    for part, split in found["splits"].items():
        table.add_row(
            part.replace("_", "-"),
            f"{split['documents']:,}",
            f"{split['tokens']:,}",
            f"{split['text_bytes']:,}",
            f"{split['bytes_per_token']:.2f}",
            str(split["shards"]),
            split["digest"],
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(found['folder'])}[/]  digest {found['digest']}, verified")
    console.print(f"source     {escape(source['name'])}: {source['documents']:,} documents, digest {source['digest']}")
    console.print(f"tokenizer  {tokenizer['kind']}, {tokenizer['vocab_size']:,} tokens, digest {tokenizer['digest']}")
    console.print(
        f"baselines  gzip -9 {baselines['gzip_bits_per_byte']:.3f}, xz -9 {baselines['xz_bits_per_byte']:.3f} "
        f"bits per byte of {baselines['text_bytes']:,} held-out bytes"
    )
    if source.get("copies"):
        console.print(
            f"copies     {source['copies']:,} documents repeat an earlier text, {source['copied_bytes']:,} bytes"
        )
    if found["rejected_file"]:
        console.print(f"set aside  {source['rejected']:,} records in {escape(found['rejected_file'])}")
    console.print(table)
    for part, split in found["splits"].items():
        if split["loss_tokens"] < split["tokens"]:
            part = part.replace("_", "-")
            console.print(f"{part}: {split['loss_tokens']:,} of {split['tokens']:,} tokens carry loss")
    for line in found["splits"]["train"]["beginning"].splitlines()[:12]:
        console.print("  │ " + escape(line))
