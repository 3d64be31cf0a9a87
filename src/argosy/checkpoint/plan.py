"""Who writes what: decided once, since the tensors of a run stay where they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch.distributed as dist
from torch import Tensor

from argosy.checkpoint.dcp import dcp_metadata
from argosy.checkpoint.pieces import buffer_of, pieces
from argosy.checkpoint.shards import Chunk, Shard
from argosy.checkpoint.state import Tree
from argosy.checkpoint.write import place, rank_file_name


@dataclass(frozen=True)
class Plan:
    """What this rank writes in each save."""

    file: str
    shards: tuple[Shard, ...]
    dcp_metadata: bytes | None
    """On rank 0: DCP's ``.metadata``, which is the same in every save."""


def make_plan(tree: Tree, group: dist.ProcessGroup | None) -> Plan:
    """Give each chunk to one of the ranks that hold it, so that all write about the same; collective over `group`."""
    mine = {chunk: part for name, tensor in flat(tree).items() for chunk, part in pieces(name, tensor)}
    rank = 0 if group is None else dist.get_rank(group)
    held: list[list[Chunk]] = [list(mine)]
    if group is not None:
        held = [[]] * dist.get_world_size(group)
        dist.all_gather_object(held, list(mine), group=group)
    given = assign(held)
    shards = tuple(Shard(chunk, partial(buffer_of, mine[chunk])) for chunk in given[rank])
    stored = [one for r, chunks in enumerate(given) for one in place(chunks, rank_file_name(r))]
    return Plan(rank_file_name(rank), shards, dcp_metadata(stored) if rank == 0 else None)


def plan_of(shards: Sequence[Shard]) -> Plan:
    """A lone writer's plan for shards that come from anywhere."""
    file = rank_file_name(0)
    return Plan(file, tuple(shards), dcp_metadata(place([shard.chunk for shard in shards], file)))


def assign(held: Sequence[Sequence[Chunk]]) -> list[list[Chunk]]:
    """For each rank the chunks to write, of those that it holds: the largest first, each to the least busy holder."""
    holders: dict[Chunk, list[int]] = {}
    for rank, chunks in enumerate(held):
        for chunk in chunks:
            holders.setdefault(chunk, []).append(rank)
    load = [0] * len(held)
    given: list[set[Chunk]] = [set() for _ in held]
    for chunk in sorted(holders, key=lambda chunk: -chunk.bytes):
        rank = min(holders[chunk], key=lambda rank: load[rank])
        load[rank] += chunk.bytes
        given[rank].add(chunk)
    return [[chunk for chunk in chunks if chunk in given[rank]] for rank, chunks in enumerate(held)]


def flat(tree: Tree) -> dict[str, Tensor]:
    """Tensors by their names in a checkpoint, ``part.name``."""
    return {f"{part}.{name}": tensor for part, tensors in tree.items() for name, tensor in tensors.items()}
