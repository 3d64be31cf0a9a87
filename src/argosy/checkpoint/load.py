"""Load a checkpoint into a program of any layout."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from argosy.checkpoint.agreement import first_error, on_all_ranks
from argosy.checkpoint.files import opened, read_into
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.pieces import buffer_of, pieces
from argosy.checkpoint.plan import flat
from argosy.checkpoint.shards import Chunk, Stored, begin_digest
from argosy.checkpoint.state import Tree
from argosy.errors import InputError

_NAMED = 3
"""Differences to the program that an error names."""

Part = tuple[Chunk, Tensor]
"""A chunk that this rank holds, and its memory."""


def load(folder: Path, manifest: Manifest, tree: Tree, group: dist.ProcessGroup | None) -> None:
    """Fill the tensors of `tree` in place from the checkpoint in `folder`, whatever layout wrote it.

    `folder` and `manifest` are what :func:`~argosy.checkpoint.find.find` returned: every byte has been verified before
    a tensor is touched. Each part of the tree (such as ``model``) must be the checkpoint's, no more and no less; parts
    that are not in the tree are not read. Floating-point types are converted.

    Raises InputError, on all ranks alike, when the checkpoint is of another program or has changed meanwhile.
    """
    mine = flat(tree)
    stored = sorted(name for name in manifest.tensors if name.startswith(tuple(f"{part}." for part in tree)))
    # One byte for each name, whatever the number of ranks: names are long
    seen = on_all_ranks(lambda: (_differences(manifest, mine), bytes(name in mine for name in stored)), group)
    found = [outcome.value for outcome in seen if outcome.value is not None]
    other = {line for lines, _ in found for line in lines}
    absent = [name for name, *here in zip(stored, *(names for _, names in found), strict=True) if not any(here)]
    if differences := sorted(other | {f"{name} is in it and nowhere here" for name in absent}):
        more = f" and {len(differences) - _NAMED} more" if len(differences) > _NAMED else ""
        raise InputError(f"is of another model: {'; '.join(differences[:_NAMED])}{more}", where=str(folder))
    if error := first_error(on_all_ranks(lambda: fill(folder, manifest, mine), group)):
        raise error if isinstance(error, InputError) else InputError(f"cannot be read: {error}", where=str(folder))


def fill(folder: Path, manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
    """Read what this rank holds of `tensors` (by their names in the checkpoint), on its own.

    A chunk that lies here as it lies in the file is read into its place; of any other the needed part is copied out of
    a buffer, so that one chunk at most is in memory beside the tensors. What is read is digested again.
    """
    _fill(folder, manifest, {name: pieces(name, tensor) for name, tensor in tensors.items()})


def fill_chunk(folder: Path, manifest: Manifest, chunk: Chunk, memory: Tensor) -> None:
    """:func:`fill` of one piece of a tensor."""
    _fill(folder, manifest, {chunk.name: [(chunk, memory)]})


def _fill(folder: Path, manifest: Manifest, parts: Mapping[str, list[Part]]) -> None:
    by_file: dict[str, list[Stored]] = defaultdict(list)
    for one in manifest.stored(parts):
        if any(_overlap(one.chunk, chunk) is not None for chunk, _ in parts[one.chunk.name]):
            by_file[one.file].append(one)
    for file in sorted(by_file):
        with opened(folder / file) as descriptor:
            for one in sorted(by_file[file], key=lambda one: one.at):
                if not _read_chunk(descriptor, one, parts[one.chunk.name]):
                    raise InputError(f"{one.chunk.name} differs from its digest", where=str(folder / file))


def restore_rng(tree: Tree, rank: int) -> None:
    """Set this rank's random state from a loaded tree."""
    torch.set_rng_state(tree["rng"][f"rank-{rank}"])


def _differences(manifest: Manifest, mine: Mapping[str, Tensor]) -> list[str]:
    """Tensors of this rank that the checkpoint lacks or has otherwise."""
    found = []
    for name, tensor in mine.items():
        dtype, shape = _dtype(tensor), tuple(tensor.shape)
        stored = manifest.tensors.get(name)
        if stored is None:
            found.append(f"{name} is not in it")
        elif shape != stored.shape:
            found.append(f"{name} is {list(stored.shape)} there, {list(shape)} here")
        elif dtype != stored.dtype and not ("float" in dtype and "float" in stored.dtype):
            found.append(f"{name} is {stored.dtype} there, {dtype} here")
    return found


@torch.no_grad()
def _read_chunk(descriptor: int, one: Stored, parts: list[Part]) -> bool:
    """Whether the chunk matched its digest."""
    digest = begin_digest(one.chunk)
    for chunk, memory in parts:
        if chunk == one.chunk and memory.is_contiguous() and memory.device.type == "cpu":
            read_into(descriptor, one.at, buffer_of(memory), digest)
            return digest.hexdigest() == one.digest
    content = torch.empty(one.chunk.sizes, dtype=getattr(torch, one.chunk.dtype))
    read_into(descriptor, one.at, buffer_of(content), digest)
    if digest.hexdigest() != one.digest:
        return False
    for chunk, memory in parts:
        if (common := _overlap(one.chunk, chunk)) is not None:
            memory[_within(chunk, common)].copy_(content[_within(one.chunk, common)])
    return True


def _within(chunk: Chunk, ranges: list[tuple[int, int]]) -> tuple[slice, ...]:
    """Ranges of indices of the whole tensor, as those of `chunk`."""
    return tuple(slice(low - first, high - first) for (low, high), first in zip(ranges, chunk.offsets, strict=True))


def _overlap(one: Chunk, other: Chunk) -> list[tuple[int, int]] | None:
    """The ranges of indices that both have, in each dim; None where they share no element. [] for two scalars."""
    ranges = [
        (max(a, b), min(a + m, b + n))
        for a, m, b, n in zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    ]
    return ranges if all(low < high for low, high in ranges) else None


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
