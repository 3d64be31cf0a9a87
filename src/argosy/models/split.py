"""How tensor parallelism divides a module's matrices, declared beside each module.

A module says in ``tensor_split`` which of its linear layers are divided and how; what it does not name stays whole
on every tensor-parallel rank. :mod:`argosy.parallel.tensor` reads it, places the shards and moves activations.
"""

from enum import IntEnum

from torch import Tensor
from torch.distributed.tensor import DTensor


class Split(IntEnum):
    """The dim of a weight [out, in] that is divided over the ranks."""

    ROWS = 0
    """Each rank computes a share of the outputs from the whole input; the bias is divided too."""
    COLUMNS = 1
    """Each rank adds its share of the inputs: the outputs of all ranks have to be summed."""


def local(parameter: Tensor) -> Tensor:
    """What this rank holds of `parameter`; its gradient flows back to the shard."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
