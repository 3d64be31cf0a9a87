"""DCP's ``.metadata``: written for other tools."""

import io
import pickle
from collections.abc import Iterable
from itertools import groupby

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from argosy.checkpoint.archive import archive
from argosy.checkpoint.shards import Stored


def dcp_metadata(stored: Iterable[Stored]) -> bytes:
    """The content of ``.metadata`` for chunks at their places; names are ``part.name``, as a nested dict gives them."""
    ordered = sorted(stored, key=lambda one: (one.chunk.name, one.chunk.offsets))
    tensors: dict[str, STORAGE_TYPES] = {}
    places = {}
    for name, group in groupby(ordered, lambda one: one.chunk.name):
        pieces = list(group)
        tensors[name] = TensorStorageMetadata(
            TensorProperties(dtype=getattr(torch, pieces[0].chunk.dtype)),
            torch.Size(pieces[0].chunk.shape),
            [ChunkStorageMetadata(torch.Size(one.chunk.offsets), torch.Size(one.chunk.sizes)) for one in pieces],
        )
        for number, one in enumerate(pieces):
            head, tail = archive(one.chunk)
            places[MetadataIndex(name, one.chunk.offsets, number)] = _StorageInfo(
                one.file, one.at - len(head), len(head) + one.chunk.bytes + len(tail)
            )
    paths = {name: tuple(name.split(".", 1)) for name in tensors}
    metadata = Metadata(tensors, planner_data=paths, storage_data=places, storage_meta=StorageMeta(), version="1.0.0")
    content = io.BytesIO()
    pickle.dump(metadata, content)
    return content.getvalue()
