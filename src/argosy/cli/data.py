"""`argosy data`: make token data from text, and look into it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from argosy.data.build import TokenizerSpec


def register(app: typer.Typer) -> None:
    data = typer.Typer(help="Build and inspect token data.", no_args_is_help=True)
    data.command("build")(build)
    data.command("inspect")(inspect)
    app.add_typer(data, name="data")


def build(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Text or JSONL file, or a folder of them.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to make.")],
    text_field: Annotated[str, typer.Option(help="JSONL field that holds the text.")] = "text",
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a data set of token shards from text.

    \b
    Example: argosy data build books/ data/books --vocab-size 8192
    Then:    argosy train RECIPE --set data.source=data/books
    Answers: argosy data build qa.jsonl data/qa --loss response --tokenizer runs/quickstart
    """
    from argosy.data.build import build_data_set
    from argosy.data.chat_template import ChatTemplate
    from argosy.data.conversations import Conversations
    from argosy.data.corpus import Corpus
    from argosy.data.inspect import inspect as describe
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
    corpus: Corpus = TextFiles(source, text_field)
    if loss == "response":
        template = ChatTemplate.beside(spec.path) if spec.path is not None else ChatTemplate()
        if chat_template is not None:
            template = ChatTemplate.read(chat_template, spec.path)
        special = (END_OF_TEXT,) if spec.path is None else Tokenizer.load(spec.path).special_tokens
        corpus = Conversations(source, template, prompt_field, response_field, messages_field, special)
        typer.echo(f"chat template: {template.name}", err=True)
    build_data_set(
        corpus,
        out,
        spec,
        held_out_share=held_out_share,
        most_rejected=most_rejected,
        chat_template=template.source if template is not None else None,
        say=lambda line: typer.echo(line, err=True),
    )
    _show(describe(out), as_json)


def inspect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder made by `argosy data build`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Verify a data set and print its counts, digests and first text.

    \b
    Example: argosy data inspect data/books
    """
    from argosy.data.inspect import inspect as describe

    _show(describe(folder), as_json)


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
    if found["rejected_file"]:
        console.print(f"set aside  {source['rejected']:,} records in {escape(found['rejected_file'])}")
    console.print(table)
    for part, split in found["splits"].items():
        if split["loss_tokens"] < split["tokens"]:
            part = part.replace("_", "-")
            console.print(f"{part}: {split['loss_tokens']:,} of {split['tokens']:,} tokens carry loss")
    for line in found["splits"]["train"]["beginning"].splitlines()[:12]:
        console.print("  │ " + escape(line))
