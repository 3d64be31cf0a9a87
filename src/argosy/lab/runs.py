"""Finished training runs as arrays: what a fit sees."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.laws.surfaces import Array, Points

SAME_LEVEL = 0.1
"""Runs whose compute differs by less than this (natural log) count as one level of compute."""


@dataclass(frozen=True)
class Runs:
    """Rows of one recipe: `parameters`, `tokens`, `compute_flops` (rows,), all positive; losses in nats per token.

    With `axis` (one-dimensional data) only that column means something and the other two repeat it, so that one code
    measures distances for both.
    """

    parameters: Array
    tokens: Array
    compute_flops: Array
    loss: Array
    unique_tokens: Array | None = None
    axis: str | None = None

    @classmethod
    def targets(cls, parameters: Array, tokens: Array, compute_flops: Array, unique: Array | None = None) -> "Runs":
        """Runs that have not happened: their loss is NaN."""
        return cls(parameters, tokens, compute_flops, np.full(len(parameters), np.nan), unique)

    @classmethod
    def on_axis(cls, axis: str, values: Array, loss: Array | None = None) -> "Runs":
        """One-dimensional data, or targets (without `loss`)."""
        return cls(values, values, values, np.full(len(values), np.nan) if loss is None else loss, axis=axis)

    def __len__(self) -> int:
        return len(self.parameters)

    def take(self, which: NDArray[Any]) -> "Runs":
        """The rows of a mask or of indices."""
        unique = None if self.unique_tokens is None else self.unique_tokens[which]
        return replace(
            self,
            parameters=self.parameters[which],
            tokens=self.tokens[which],
            compute_flops=self.compute_flops[which],
            loss=self.loss[which],
            unique_tokens=unique,
        )

    def centre(self) -> tuple[float, float]:
        """Mean logs of parameters and tokens: the origin of :meth:`points`."""
        return float(np.log(self.parameters).mean()), float(np.log(self.tokens).mean())

    def points(self, centre: tuple[float, float]) -> Points:
        """Centred log coordinates."""
        n, d = np.log(self.parameters) - centre[0], np.log(self.tokens) - centre[1]
        if self.unique_tokens is None:
            return Points(n, d)
        unique = np.minimum(self.unique_tokens, self.tokens)
        return Points(n, d, np.log(unique) - centre[1], self.tokens / unique - 1)

    @property
    def repeats_data(self) -> bool:
        """Whether any run saw its data more than once (beyond rounding of the count)."""
        return self.unique_tokens is not None and bool(np.any(self.tokens > 1.05 * self.unique_tokens))

    def configurations(self) -> NDArray[np.intp]:
        """Number of the configuration (equal N, D and unique tokens) of each run, (rows,)."""
        unique = self.tokens if self.unique_tokens is None else self.unique_tokens
        keys = np.stack([self.parameters, self.tokens, unique])
        return np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)

    def levels(self) -> list[NDArray[np.intp]]:
        """Indices of the runs of each level of compute, ascending."""
        logs = np.log(self.compute_flops)
        order = np.argsort(logs, kind="stable")
        breaks = np.flatnonzero(np.diff(logs[order]) > SAME_LEVEL) + 1
        return np.split(order, breaks)


def distance(runs: Runs, targets: Runs) -> Array:
    """How far targets lie beyond the largest run, in e-folds of the axis that is exceeded most; 0 inside."""
    beyond = [
        np.log(getattr(targets, axis)) - np.log(getattr(runs, axis)).max()
        for axis in ("parameters", "tokens", "compute_flops")
    ]
    return np.maximum(np.max(beyond, axis=0), 0.0)


def require_spread(runs: Runs, where: str) -> None:
    """Refuse what no law can be fitted to: one size only, or too few runs."""
    if runs.axis:
        if len(np.unique(runs.parameters)) < 4:
            raise InputError(
                f"only {len(np.unique(runs.parameters))} different values of {runs.axis}; a curve needs 4",
                where=where,
                do="add runs at other sizes",
            )
        return
    for column, name in ((runs.parameters, "N (one size only)"), (runs.tokens, "D")):
        if len(np.unique(column)) < 2:
            raise InputError(
                f"all {len(runs)} runs have the same {name}: nothing shows how the loss changes with it",
                where=where,
                do="add runs at other sizes, or fit the other axis alone, as --x D",
            )
    if len(runs) < 6:
        raise InputError(f"{len(runs)} usable runs; a surface over N and D needs 6", where=where, do="add runs")
