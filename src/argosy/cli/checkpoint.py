"""`argosy checkpoint`: look at checkpoints, check them, compare them, and seal those of others."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from argosy.checkpoint.manifest import Manifest

_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_SOURCE = "RUN|RUN@STEP|CHECKPOINT"


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    checkpoint = typer.Typer(help="Look at checkpoints, check, compare and seal them.", no_args_is_help=True)
    for command in (list_, verify, diff, reshard, seal):
        checkpoint.command(command.__name__.rstrip("_"))(command)
    app.add_typer(checkpoint, name="checkpoint")


def list_(
    path: Annotated[Path, typer.Argument(help="A run, a folder of checkpoints, or one checkpoint.")],
    as_json: _Json = False,
) -> None:
    """Say which checkpoints there are, newest first, as their manifests have it; `verify` reads all bytes.

    \b
    Example: argosy checkpoint list runs/quickstart
    """
    from argosy.checkpoint.catalog import catalog

    entries = catalog(path)
    if as_json:
        rows = [
            {"name": one.name, "step": one.step, "state": one.state, "loss": one.loss, "why": one.why or None}
            | (_about(one.manifest) if one.manifest is not None else {})
            for one in entries
        ]
        print(json.dumps({"schema": "argosy.checkpoints/1", "path": str(path), "checkpoints": rows}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head, right in (
        ("checkpoint", 0),
        ("state", 0),
        ("size", 1),
        ("ranks", 1),
        ("attempt", 1),
        ("loss", 1),
        ("", 0),
    ):
        table.add_column(head, justify="right" if right else "left", no_wrap=bool(head))
    for one in entries:
        it = one.manifest
        facts = ["", "", ""] if it is None else [_size(it.bytes), str(it.world_size), str(it.generation)]
        table.add_row(one.name, one.state, *facts, "" if one.loss is None else f"{one.loss:.4f}", one.why)
    Console(soft_wrap=True).print(table)


def verify(
    path: Annotated[Path, typer.Argument(help="A run, a folder of checkpoints, one checkpoint, or a sealed folder.")],
    as_json: _Json = False,
) -> None:
    """Read every byte and compare it with the digests. Exit code 1: something is damaged, and its files are named.

    \b
    Example: argosy checkpoint verify runs/quickstart
    """
    from argosy.checkpoint.check import verify_all
    from argosy.errors import Exit

    verdicts = []
    for verdict in verify_all(path):
        verdicts.append(verdict)
        if not as_json:
            detail = "; ".join(map(str, verdict.damage)) if verdict.damage else f"whole, {_size(verdict.bytes)}"
            print(f"{verdict.name}: {'damaged: ' * bool(verdict.damage)}{detail}{verdict.note}", flush=True)
    whole = not any(verdict.damage for verdict in verdicts)
    if as_json:
        from dataclasses import asdict

        rows = [asdict(verdict) | {"whole": not verdict.damage} for verdict in verdicts]
        print(json.dumps({"schema": "argosy.verify/1", "path": str(path), "whole": whole, "checkpoints": rows}))
    if not whole:
        raise typer.Exit(Exit.CHECK_SAYS_NO)


def diff(
    first: Annotated[str, typer.Argument(metavar=_SOURCE)],
    second: Annotated[str, typer.Argument(metavar=_SOURCE)],
    as_json: _Json = False,
) -> None:
    """Name the tensors that differ, however each checkpoint was split. Exit code 1: some do.

    \b
    Example: argosy checkpoint diff runs/a@200 runs/b@200
    """
    from argosy.checkpoint.compare import compare
    from argosy.errors import Exit

    found = compare(_whole(first), _whole(second))
    if as_json:
        from dataclasses import asdict

        about = {key: {"first": a, "second": b} for key, (a, b) in found.about.items()}
        tensors = [asdict(one) for one in found.tensors]
        print(json.dumps({"schema": "argosy.diff/1", "same": found.same, "tensors": tensors, "about": about}))
    else:
        for one in found.tensors:
            print(f"{one.name}: {one.what}")
        print(f"{found.same} tensors have equal bits, {len(found.tensors)} differ")
        if found.about:
            print(f"also different: {', '.join(found.about)}")
    if found.tensors:
        raise typer.Exit(Exit.CHECK_SAYS_NO)


def reshard(
    source: Annotated[str, typer.Argument(metavar=_SOURCE)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder that gets the new checkpoint.")],
    ranks: Annotated[int, typer.Option(min=1, max=100_000, help="Files to split it into, one for each rank.")] = 1,
    as_json: _Json = False,
) -> None:
    """Write a checkpoint anew for another number of ranks. Not needed to load it: any layout loads any checkpoint.

    \b
    Example: argosy checkpoint reshard runs/big@9000 merged
    """
    from argosy.checkpoint.reshard import reshard as write
    from argosy.data.files import os_errors_explained

    folder, manifest = _whole(source)
    with os_errors_explained(out):
        new = write(folder, manifest, out, ranks)
    if as_json:
        print(json.dumps({"schema": "argosy.reshard/1", "folder": str(new), "ranks": ranks, "bytes": manifest.bytes}))
        return
    print(f"{new}: {len(manifest.tensors)} tensors for {ranks} {'rank' if ranks == 1 else 'ranks'}")


def seal(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Checkpoint of any trainer: DCP or safetensors.")],
    as_json: _Json = False,
) -> None:
    """Put digests of all files beside a checkpoint of any trainer, so that `verify` can tell whether it is whole.

    \b
    Example: argosy checkpoint seal models/llama-3-8b
    Then:    argosy checkpoint verify models/llama-3-8b
    """
    from argosy.checkpoint.seal import FILE_NAME
    from argosy.checkpoint.seal import seal as write

    done = write(folder)
    if as_json:
        content = {"folder": str(folder), "kind": done.kind, "files": len(done.files), "bytes": done.bytes}
        print(json.dumps({"schema": "argosy.sealed/1", **content}))
        return
    print(f"{folder / FILE_NAME}: digests of {len(done.files)} files, {_size(done.bytes)}")


def _whole(source: str) -> "tuple[Path, Manifest]":
    """The verified checkpoint that `source` means. Raises InputError when it is damaged."""
    from argosy.checkpoint.find import look
    from argosy.checkpoint.manifest import Manifest
    from argosy.checkpoint.origin import find_origin
    from argosy.errors import InputError

    origin = find_origin(source)
    if origin.step is None:
        raise InputError("is no checkpoint of Argosy", where=source, do="name a run, RUN@STEP or a checkpoint")
    found = look(origin.folder, None)
    if isinstance(found, Manifest):
        return origin.folder, found
    raise found


def _about(manifest: "Manifest") -> dict[str, Any]:
    keys = ("run_id", "generation", "world_size", "data_position", "created_wall_s", "verified_wall_s", "bytes")
    return {key: getattr(manifest, key) for key in keys} | {"tensors": len(manifest.tensors)}


def _size(size_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.3g} TB"
