"""Which ranks take part in a collective together, from the layout in the journal's header."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

EVERYBODY = ("control",)
_AXES = ("pp", "dp", "fsdp", "cp", "tp")


def group_of_ranks(layout: Mapping[str, Any], world: int, axis: str) -> Ints | None:
    """[world] number of each rank's group on a mesh axis; None where the layout does not say.

    Ranks are numbered as :meth:`argosy.layout.layout.Layout.coordinates` does, the last axis of `order` fastest.
    """
    if axis in EVERYBODY:
        return np.zeros(world, np.int64)
    order: Sequence[str] = layout.get("order") or _AXES
    sizes = [int(layout.get(name, 1)) for name in order]
    if axis not in order or int(np.prod(sizes)) != world:
        return None
    numbers = np.arange(world).reshape(sizes)
    # neighbours on the axis share all other coordinates, so their first member names the group
    first = np.take(numbers, [0], axis=list(order).index(axis))
    return np.broadcast_to(first, numbers.shape).reshape(world).astype(np.int64)
