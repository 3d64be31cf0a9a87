"""When each attempt held each host's devices, how it ended, and when each file last showed life."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from argosy.errors import Exit
from argosy.journal.heartbeat import Beat, boot_word
from argosy.journal.reader import Journal, JournalFile
from argosy.ledger.clocks import RunClock
from argosy.ledger.refusals import Refusals

CLEAN = (Exit.DONE, Exit.START_AGAIN)


@dataclass
class Source:
    """A journal file on the run's timeline, cut at the report's cut-off."""

    file: JournalFile
    offset_ns: int
    alive_ns: int
    """Last sign of life: the latest stamp in the file or the heartbeat page, whichever is later."""
    closed_ns: int | None
    """When the writer ended in order."""
    cut_short: bool
    """Records are missing at the end: a torn line, or the heartbeat knows of records that the file has not."""

    @property
    def wrote_end(self) -> bool:
        """An agent that saw its attempt end."""
        return any(row["ph"] == "end" for row in self.file.of_kind("attempt"))

    @property
    def count(self) -> int:
        """Devices that the file stands for."""
        return int(self.file.header.get("stands_for", 1))

    @property
    def device(self) -> str:
        return f"{self.file.header['host']}/{self.file.header['device']}"


@dataclass
class Seat:
    """One attempt on one host: a window of time in which it held the host's devices."""

    attempt: int
    host: str
    start_ns: int
    end_ns: int
    ended: bool
    """Somebody wrote that it ended; otherwise it goes on, or its launcher was killed."""
    clean: bool
    """It ended as somebody meant it to."""
    end: dict[str, Any] = field(default_factory=dict)
    """The agent's end record."""
    world: int = 0
    agents: list[Source] = field(default_factory=list)
    ranks: dict[str, Source] = field(default_factory=dict)
    """By device."""
    expected: int = 0
    """Ranks of the whole attempt that left no file."""

    @property
    def meant_to_stop(self) -> bool:
        """Nothing was to run after it."""
        return self.clean and self.end.get("exit", 0) == Exit.DONE


def sources(journal: Journal, clock: RunClock, as_of_ns: int | None) -> tuple[list[Source], list[Source]]:
    """Rank files and agent files that exist at the cut-off."""
    ranks = [_source(file, journal.beats.get((file.attempt, file.rank)), clock, as_of_ns) for file in journal.ranks]  # type: ignore[arg-type]
    agents = [_source(file, None, clock, as_of_ns) for file in journal.agents]
    if journal.live and journal.read_at and as_of_ns is None:
        # the launcher of a live run is alive while it is read, though it writes nothing meanwhile
        boot, now_ns = journal.read_at
        last = max((file.attempt for file in journal.files), default=0)
        for agent in agents:
            if agent and agent.file.attempt == last and agent.file.header["boot_id"] == boot and not agent.wrote_end:
                agent.alive_ns = max(agent.alive_ns, now_ns + agent.offset_ns)
    return [s for s in ranks if s], [s for s in agents if s]


def _source(file: JournalFile, beat: Beat | None, clock: RunClock, as_of_ns: int | None) -> Source | None:
    boot = file.header["boot_id"]
    offset_ns = clock.offset_ns(boot)
    if as_of_ns is not None and file.first_ns + offset_ns >= as_of_ns:
        return None
    alive_ns, cut_short = file.last_ns, file.torn_end
    if beat and beat.boot == boot_word(boot):
        alive_ns = max(alive_ns, beat.mono_ns)
        cut_short |= beat.seq > file.last_seq
    alive_ns += offset_ns
    closed = file.closed_ns
    closed_ns = None if closed is None else closed + offset_ns
    if as_of_ns is not None and alive_ns >= as_of_ns:
        alive_ns, cut_short = as_of_ns, False
        closed_ns = closed_ns if closed_ns is not None and closed_ns < as_of_ns else None
    return Source(file, offset_ns, alive_ns, closed_ns, cut_short)


def seats(ranks: Iterable[Source], agents: Iterable[Source], as_of_ns: int | None, refusals: Refusals) -> list[Seat]:
    """The attempts by host, in the order in which they began. Two ranks of one on a device are refused."""
    grouped: dict[tuple[int, str], tuple[list[Source], list[Source]]] = defaultdict(lambda: ([], []))
    for kind, members in enumerate((ranks, agents)):
        for source in members:
            grouped[source.file.attempt, source.file.header["host"]][kind].append(source)
    found = [_seat(*key, *members, as_of_ns, refusals) for key, members in grouped.items()]
    with_file: dict[int, int] = defaultdict(int)
    for seat in found:
        with_file[seat.attempt] += sum(rank.count for rank in seat.ranks.values())
    for seat in found:
        seat.expected = seat.world - with_file[seat.attempt]
    return sorted(found, key=lambda seat: (seat.start_ns, seat.attempt, seat.host))


def _seat(
    attempt: int,
    host: str,
    ranks: list[Source],
    agents: list[Source],
    as_of_ns: int | None,
    refusals: Refusals,
) -> Seat:
    marks = [
        (row["t"] + agent.offset_ns, row)
        for agent in agents
        for row in agent.file.of_kind("attempt")
        if as_of_ns is None or row["t"] + agent.offset_ns < as_of_ns
    ]
    starts = [t for t, row in marks if row["ph"] == "start"] or [
        s.file.header["proc_start"] + s.offset_ns for s in ranks
    ]
    start_ns = min(starts or [agent.file.first_ns + agent.offset_ns for agent in agents])
    ends = [(t, row) for t, row in marks if row["ph"] == "end"]
    alive_ns = max(source.alive_ns for source in (*ranks, *agents))
    seat = Seat(attempt, host, start_ns, max(alive_ns, start_ns), ended=False, clean=False, agents=agents)
    if ends:
        seat.end_ns, seat.end = max(ends, key=lambda item: item[0])
        seat.ended = True
        seat.clean = seat.end.get("signal") is None and seat.end.get("exit", Exit.DONE) in CLEAN
    elif not agents and all(rank.closed_ns is not None for rank in ranks):
        seat.ended = seat.clean = True
    seat.world = max(source.file.header["world"] for source in (*ranks, *agents))
    for rank in ranks:
        first = seat.ranks.setdefault(rank.device, rank)
        if first is not rank:
            refusals.refuse(f"is on {rank.device}, and so is {first.file.name}", rank.file.name)
    return seat
