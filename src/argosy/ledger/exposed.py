"""Exposed communication and how it divides: the columns that waits are computed in."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.journal.phys import AXES, comm
from argosy.ledger.accounts import PHYS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CHANNELS = (*AXES, "control")
EXPOSED = [PHYS.index(comm(channel)) for channel in CHANNELS]


@dataclass
class Division:
    """Of one rank's exposed communication, by row of its file: shares that were waiting, and that nobody can tell.

    [rows, CHANNELS], 0 to 1; the rest is transfer.
    """

    wait: Floats
    untold: Floats
    exact: NDArray[np.bool_]
    """[rows] from this step's own stamps."""

    @classmethod
    def of_nothing(cls, rows: int) -> "Division":
        """All of it is transfer."""
        return cls(np.zeros((rows, len(CHANNELS))), np.zeros((rows, len(CHANNELS))), np.zeros(rows, bool))
