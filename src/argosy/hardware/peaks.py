"""The matrix-product peak measured on this machine, remembered between runs.

A peak is the best of several repeats while all ranks multiply at once: what one rank can have when
its neighbours work too. It holds for one kind of machine, dtype, number of ranks and threads, and
torch version, and goes stale after :data:`STALE_AFTER_DAYS`. Measuring it is the engine's task;
this module only keeps it, in ``~/.cache/argosy/peaks.json`` (folder from ``ARGOSY_CACHE``).
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from argosy.errors import InputError

SCHEMA = 1
STALE_AFTER_DAYS = 30


@dataclass(frozen=True)
class PeakKey:
    """What a measured peak holds for."""

    machine: str
    """``str(this_machine())``."""
    dtype: str
    """``fp32`` or ``bf16``."""
    ranks: int
    """Ranks that multiplied at once on this machine."""
    threads: int
    """Threads of each rank."""
    torch: str
    """Version of torch, with its build tag."""


@dataclass(frozen=True)
class Peak:
    """A measured peak."""

    key: PeakKey
    flops_per_s: float
    """Of one rank: mean over the ranks of each rank's best repeat."""
    repeats: int
    measured_on: str
    """ISO date (UTC)."""

    def is_stale(self, today: date) -> bool:
        """Whether it must be measured again: too old, or dated in the future (the clock was wrong)."""
        age_days = (today - date.fromisoformat(self.measured_on)).days
        return not 0 <= age_days <= STALE_AFTER_DAYS

    def record(self) -> dict[str, object]:
        """Fields of the `peak` record of a run's journal, which keeps its reports true on other machines."""
        return {
            "dtype": self.key.dtype,
            "flops_per_s": self.flops_per_s,
            "src": "measured",
            "date": self.measured_on,
            "ranks": self.key.ranks,
            "threads": self.key.threads,
        }


def cache_folder() -> Path:
    """Folder for what can be made again: ``ARGOSY_CACHE``, else ``~/.cache/argosy``."""
    return Path(os.environ.get("ARGOSY_CACHE") or Path.home() / ".cache" / "argosy")


class PeakCache:
    """The file of measured peaks; readers and writers of several processes may overlap."""

    def __init__(self, path: Path | None = None):
        self.path = path or cache_folder() / "peaks.json"

    def get(self, key: PeakKey, today: date) -> Peak | None:
        """The peak for `key` unless there is none or it is stale."""
        peak = self._read().get(key)
        return None if peak is None or peak.is_stale(today) else peak

    def put(self, peak: Peak, today: date) -> Peak:
        """Keep `peak` and return the one that now holds.

        A peak is a maximum, so a lower measurement does not replace a higher one that is still fresh:
        a busy neighbour during the measurement would only make later runs look better than they are.
        """
        with self._locked():
            peaks = self._read()
            known = peaks.get(peak.key)
            if known is not None and not known.is_stale(today) and known.flops_per_s >= peak.flops_per_s:
                return known
            peaks[peak.key] = peak
            self._write(list(peaks.values()))
            return peak

    def _read(self) -> dict[PeakKey, Peak]:
        try:
            content = json.loads(self.path.read_bytes())
            if content["schema"] != SCHEMA:
                raise ValueError(f"schema {content['schema']}, this version reads {SCHEMA}")
            peaks = [Peak(**(row | {"key": PeakKey(**row["key"])})) for row in content["peaks"]]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"not a file of peaks ({error})", where=str(self.path), do="delete it") from error
        return {peak.key: peak for peak in peaks}

    def _write(self, peaks: list[Peak]) -> None:
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, "peaks": [asdict(peak) for peak in peaks]}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # A file of its own: the lock on peaks.json itself would be lost with each rename.
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = open(self.path.with_name(self.path.name + ".lock"), "w")  # noqa: SIM115 (closed below)
        except OSError as error:
            raise InputError(f"cannot write ({error.strerror})", where=str(self.path), do="set ARGOSY_CACHE") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
