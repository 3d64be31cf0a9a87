"""From seconds of chunks to ratios with intervals; and how quiet the machine was."""

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

_RESAMPLES = 10_000


@dataclass(frozen=True)
class Ratio:
    median: float
    low: float
    high: float


def ratio(theirs_s: Sequence[float], ours_s: Sequence[float]) -> Ratio:
    """How many times as fast ours is: median of the rounds' ratios, and its 95 % bootstrap interval (percentiles)."""
    ratios = np.asarray(theirs_s) / np.asarray(ours_s)
    draws = np.random.default_rng(0).integers(len(ratios), size=(_RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(ratios[draws], axis=1), [0.025, 0.975])
    return Ratio(float(np.median(ratios)), float(low), float(high))


def largest_difference(losses: Iterable[Sequence[float]]) -> float:
    """Largest relative difference of two curves at a step."""
    curves = np.asarray(list(losses))
    return float(((curves.max(0) - curves.min(0)) / curves.min(0)).max())


class Quiet:
    """Share of the machine's cores that processes other than the contestants took while it was open."""

    def __init__(self, own_s: float):
        self._own_s, self._busy_s, self._all_s = own_s, *self._machine()

    def others_share(self, own_s: float) -> float:
        """`own_s`: time on a core of the contestants, at the start and now."""
        busy_s, all_s = self._machine()
        others_s = busy_s - self._busy_s - (own_s - self._own_s)
        return max(0.0, others_s / (all_s - self._all_s))

    @staticmethod
    def _machine() -> tuple[float, float]:
        times = psutil.cpu_times()
        everything = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        return everything - times.idle - getattr(times, "iowait", 0.0), everything


def version(python: Path | str, package: str) -> str:
    """Version of `package` for the interpreter `python`, or "unknown"."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def commit(folder: Path) -> str:
    """The commit that is checked out in `folder`, with a + when files differ from it."""
    git = ["git", "-C", str(folder)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    dirty = subprocess.run([*git, "status", "--porcelain", "-uno", "src"], capture_output=True, text=True).stdout
    return f"{head or 'unknown'}{'+' if dirty else ''}"
