"""Write a checkpoint anew for another number of ranks. Any checkpoint loads into any layout as it is: this only makes
the files fit, for many readers at once or for one file."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from argosy.checkpoint.commit import abandon, begin_draft, commit
from argosy.checkpoint.dcp import dcp_metadata
from argosy.checkpoint.folders import step_folder
from argosy.checkpoint.load import fill_chunk
from argosy.checkpoint.manifest import Manifest, StoredTensor
from argosy.checkpoint.pieces import buffer_of
from argosy.checkpoint.shards import Chunk, Shard
from argosy.checkpoint.write import place, rank_file_name, write_rank_file
from argosy.errors import InputError


def reshard(folder: Path, manifest: Manifest, out: Path, ranks: int) -> Path:
    """Write the verified checkpoint in `folder` to `out`/step-S in `ranks` files, each tensor split evenly in dim 0.

    Content and the rest of the manifest stay; at most two shards are in memory, one of each side. Returns the new
    folder. Raises InputError when that exists or `folder` changes meanwhile, OSError as the system says it, with
    nothing left behind.
    """
    if out.exists() and not out.is_dir():
        raise InputError("is no folder", where=str(out), do="name another")
    if step_folder(out, manifest.step).exists():
        raise InputError("exists already", where=str(step_folder(out, manifest.step)), do="name another folder")
    chunks: list[list[Chunk]] = [[] for _ in range(ranks)]
    for name, tensor in manifest.tensors.items():
        for rank, chunk in enumerate(_split(name, tensor, ranks)):
            chunks[rank].append(chunk)
    files = []
    try:
        draft = begin_draft(out, manifest.step, manifest.generation)
        for rank, mine in enumerate(chunks):
            shards = [Shard(chunk, partial(_content, folder, manifest, chunk)) for chunk in mine]
            files.append(write_rank_file(draft, rank_file_name(rank), shards))
        stored = [one for rank, mine in enumerate(chunks) for one in place(mine, rank_file_name(rank))]
        new = replace(manifest, world_size=ranks, layout={}, verified_wall_s=None)
        return commit(out, new, files, dcp_metadata(stored))
    except BaseException:
        abandon(out, manifest.step, manifest.generation)
        raise


def _split(name: str, tensor: StoredTensor, ranks: int) -> list[Chunk]:
    """As `Shard(0)` does; a scalar goes to the first rank."""
    if not tensor.shape:
        return [Chunk(name, tensor.dtype, (), (), ())]
    parts = torch.arange(tensor.shape[0]).chunk(ranks)
    rest = tensor.shape[1:]
    return [
        Chunk(
            name, tensor.dtype, tensor.shape, (int(part[0]) if len(part) else 0, *[0] * len(rest)), (len(part), *rest)
        )
        for part in parts
    ]


def _content(folder: Path, manifest: Manifest, chunk: Chunk) -> memoryview:
    part = torch.empty(chunk.sizes, dtype=getattr(torch, chunk.dtype))
    fill_chunk(folder, manifest, chunk, part)
    return buffer_of(part)
