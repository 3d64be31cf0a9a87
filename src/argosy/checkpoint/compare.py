"""What two checkpoints do not share, tensor by tensor, however each was split."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from argosy.checkpoint.load import fill
from argosy.checkpoint.manifest import Manifest, StoredTensor

_ABOUT = (
    "step",
    "world_size",
    "layout",
    "recipe_hash",
    "learning_hash",
    "running_hash",
    "data_digest",
    "vocabulary_digest",
    "data_position",
    "code_version",
    "training",
)


@dataclass(frozen=True)
class TensorDifference:
    """`what` says it in words. `elements` differ, by `largest` at most; None where it is the shape, or one lacks it."""

    name: str
    what: str
    elements: int | None = None
    largest: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Differing tensors and facts of the manifests; `same` counts tensors of equal bits."""

    same: int
    tensors: list[TensorDifference]
    about: dict[str, tuple[Any, Any]]


def compare(one: tuple[Path, Manifest], other: tuple[Path, Manifest]) -> Comparison:
    """Compare verified checkpoints. Tensors split alike are compared by their digests; of others, one at a time is in
    memory. Raises InputError when a file changes meanwhile."""
    (_, mine), (_, theirs) = one, other
    differences = []
    for name in sorted(mine.tensors.keys() | theirs.tensors.keys()):
        a, b = mine.tensors.get(name), theirs.tensors.get(name)
        if a is None or b is None:
            differences.append(TensorDifference(name, "only in the second" if a is None else "only in the first"))
        elif (a.shape, a.dtype) != (b.shape, b.dtype):
            what = f"{a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}"
            differences.append(TensorDifference(name, what))
        elif not _equal_digests(a, b) and (difference := _content(name, a, one, other)):
            differences.append(difference)
    about = {key: (getattr(mine, key), getattr(theirs, key)) for key in _ABOUT}
    same = len(mine.tensors.keys() & theirs.tensors.keys()) - sum(d.what[:4] != "only" for d in differences)
    return Comparison(same, differences, {key: pair for key, pair in about.items() if pair[0] != pair[1]})


def _equal_digests(a: StoredTensor, b: StoredTensor) -> bool:
    digests = [[(chunk.offsets, chunk.sizes, chunk.xxh3_128) for chunk in tensor.chunks] for tensor in (a, b)]
    return digests[0] == digests[1]


def _content(
    name: str, kind: StoredTensor, one: tuple[Path, Manifest], other: tuple[Path, Manifest]
) -> TensorDifference | None:
    """None where every bit is equal; NaNs of equal bits are."""
    tensors = [torch.empty(kind.shape, dtype=getattr(torch, kind.dtype)) for _ in range(2)]
    for tensor, (folder, manifest) in zip(tensors, (one, other), strict=True):
        fill(folder, manifest, {name: tensor})
    raw = [tensor.reshape(-1).view(torch.uint8).view(-1, tensor.element_size()) for tensor in tensors]
    differs = (raw[0] != raw[1]).any(dim=1)
    if not (elements := int(differs.sum())):
        return None
    a, b = (tensor.reshape(-1)[differs].to(torch.float64) for tensor in tensors)
    largest = float((a - b).abs().max())
    words = "" if math.isnan(largest) else f" by {largest:.3g} at most"
    what = f"{elements:,} of {math.prod(kind.shape):,} elements differ{words}"
    return TensorDifference(name, what, elements, None if math.isnan(largest) else largest)
