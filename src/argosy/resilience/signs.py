"""Signs of life of one host's ranks, read without asking them: their pages and what the kernel says."""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from argosy.journal.heartbeat import BYTES, Beat, as_beat
from argosy.journal.phys import PHYS


@dataclass(frozen=True)
class Sign:
    """What is known of one rank at one moment."""

    rank: int
    beat: Beat | None
    """None until it has opened its journal."""
    stopped: bool = False
    """The kernel has stopped the process (SIGSTOP, a debugger)."""

    @property
    def phase(self) -> str | None:
        """Innermost declared phase; None between phases or when nothing is known."""
        return None if self.beat is None or self.beat.phase < 0 else PHYS[self.beat.phase]

    @property
    def span(self) -> str | None:
        """Outermost declared span."""
        return None if self.beat is None or self.beat.span < 0 else PHYS[self.beat.span]

    @property
    def waits(self) -> bool:
        """It is in a collective, so what it does next is up to others."""
        return self.phase is not None and self.phase.startswith("comm.")


class SignReader:
    """Reads the page of each rank of an attempt: a mapped file, so a look costs microseconds."""

    def __init__(self, pages: dict[int, Path]):
        self._files = pages
        self._maps: dict[int, mmap.mmap] = {}

    def __enter__(self) -> "SignReader":
        return self

    def __exit__(self, *_: object) -> None:
        for mapped in self._maps.values():
            mapped.close()

    def read(self, rank: int, pid: int | None = None) -> Sign:
        """The rank's sign now; `pid` is its process, if it still runs."""
        mapped = self._maps.get(rank) or self._map(rank)
        beat = None if mapped is None else as_beat(memoryview(bytes(mapped)).cast("q"))
        return Sign(rank, beat, pid is not None and process_state(pid) in ("T", "t"))

    def _map(self, rank: int) -> mmap.mmap | None:
        try:
            handle = os.open(self._files[rank], os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            if os.fstat(handle).st_size == BYTES:
                self._maps[rank] = mmap.mmap(handle, BYTES, prot=mmap.PROT_READ)
        finally:
            os.close(handle)
        return self._maps.get(rank)


def process_state(pid: int) -> str | None:
    """The kernel's letter for a process (R, S, D, T, Z); None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[0]  # the name in parentheses may hold anything
