"""Writes journals by hand: the truth is what the test says happened, and the ledger must find it.

Times are integers on the host's monotonic clock; tests use seconds (`S`) where they can.
"""

from pathlib import Path
from typing import Any

import orjson

from argosy.journal.heartbeat import Beat, HeartbeatPage, State, boot_word
from argosy.journal.phys import INDEX
from argosy.journal.reader import Journal, collect
from argosy.ledger.books import keep_books

S = 1_000_000_000
BOOT = "0f4d5b1e-7e2a-4c58-9d3c-0123456789ab"
WALL = 1_700_000_000 * S


class WrittenFile:
    """A journal file of a rank or, with `rank` None, of an agent."""

    def __init__(self, run: "WrittenRun", attempt: int, rank: int | None, start: int, world: int, host: str):
        self.run, self.attempt, self.rank, self.host = run, attempt, rank, host
        self.rows: list[dict[str, Any]] = []
        self.last = start
        self.beat_at: tuple[int, int, int] | None = None  # time, step, number of the last record
        self._ids = 0
        wall = WALL + run.wall_error
        self.put(
            "header",
            run="r",
            attempt=attempt,
            rank=rank,
            world=world,
            device=None if rank is None else f"cpu:{rank}",
            host=host,
            boot_id=run.boots.get(host, BOOT),
            pid=1,
            t=start + run.shift,
            wall=start + wall,
            boot=start,
            proc_start=start + run.shift,
            phys=list(INDEX),
        )

    def put(self, kind: str, **fields: Any) -> "WrittenFile":
        self.rows.append({"k": kind, "q": len(self.rows), **fields})
        return self

    def step(
        self, s: int, t0: int, t1: int, *, v: int = 0, x: int = 0, tokens: int = 100, **phys: int
    ) -> "WrittenFile":
        """A step window; `phys` are self times by name, with __ for the dots."""
        amounts = [0] * len(INDEX)
        for name, ns in phys.items():
            amounts[INDEX[name.replace("__", ".")]] = ns
        while amounts and not amounts[-1]:
            amounts.pop()
        extra = ({"v": v} if v else {}) | ({"x": x} if x else {})
        shift = self.run.shift
        self.last = max(self.last, t1)
        return self.put("step", s=s, t0=t0 + shift, t1=t1 + shift, a=amounts, n=[100], l=3.0, **extra)

    def steps(self, first: int, last: int, t: int, length: int, *, v: int = 0, **phys: int) -> int:
        """Steps first..last-1 one after the other from `t`, all forward unless `phys` says else; returns the end."""
        for s in range(first, last):
            self.step(s, t, t + length, v=v, **(phys or {"forward": length}))
            t += length
        return t

    def span(self, p: str, t0: int, t1: int | None, *, d: int = 0, a: dict[str, int] | None = None) -> "WrittenFile":
        self._ids += 1
        shift = self.run.shift
        row: dict[str, Any] = {"id": self._ids, "p": p, "t0": t0 + shift, "t1": None if t1 is None else t1 + shift}
        if d:
            row["d"] = d
        if a:
            row["a"] = [a.get(name, 0) for name in INDEX]
        self.last = max(self.last, t1 or t0)
        return self.put("span", **row)

    def ckpt(self, s: int, t: int, ph: str = "committed", tier: str = "storage") -> "WrittenFile":
        return self.put("ckpt", t=t + self.run.shift, id=f"step-{s}", s=s, tier=tier, ph=ph)

    def restore(self, to: int, t: int, why: str = "resume", tier: str = "storage") -> "WrittenFile":
        return self.put("restore", t=t + self.run.shift, id=f"step-{to}", to=to, tier=tier, why=why)

    def beat(self, t: int, step: int = 0, lost: int = 0) -> "WrittenFile":
        """The last heartbeat, by a rank that had written `lost` more records than the file has."""
        self.beat_at = t, step, len(self.rows) - 1 + lost
        return self

    def close(self, t: int) -> "WrittenFile":
        return self.put("close", t=t + self.run.shift)

    def start(self, t: int) -> "WrittenFile":
        return self.put("attempt", t=t + self.run.shift, ph="start")

    def end(self, t: int, exit: int = 0, **why: Any) -> "WrittenFile":
        return self.put("attempt", t=t + self.run.shift, ph="end", exit=exit, **why)

    @property
    def name(self) -> str:
        who = f"agent-{self.host}" if self.rank is None else f"rank-{self.rank}"
        return f"events/attempt-{self.attempt}/{who}.jsonl"

    @property
    def content(self) -> bytes:
        return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self.rows)


class WrittenRun:
    """A run's journal. `shift` moves the monotonic clock, `wall_error` the wall clock at the anchors."""

    def __init__(self, shift: int = 0, wall_error: int = 0, live: bool = False):
        self.shift, self.wall_error, self.live = shift, wall_error, live
        self.boots: dict[str, str] = {}
        self.files: list[WrittenFile] = []
        self.paid_rows: list[dict[str, Any]] = []

    def agent(self, attempt: int, start: int, world: int = 1, host: str = "h") -> WrittenFile:
        self.files.append(WrittenFile(self, attempt, None, start, world, host))
        return self.files[-1].start(start)

    def rank(self, attempt: int, start: int, rank: int = 0, world: int = 1, host: str = "h") -> WrittenFile:
        self.files.append(WrittenFile(self, attempt, rank, start, world, host))
        return self.files[-1]

    def paid(self, t0: int, t1: int | None, device: int = 0, state: str = "allocated", host: str = "h") -> "WrittenRun":
        """What a launcher declares: opened, and closed unless it was killed."""
        for ph, t in (("open", t0), ("close", t1)):
            if t is not None:
                stamps = {"t": t + self.shift, "wall": t + WALL + self.wall_error}
                place = {"dev": f"cpu:{device}", "host": host, "boot_id": self.boots.get(host, BOOT)}
                self.paid_rows.append(
                    {"k": "paid", **place, "ph": ph, **stamps, "basis": "self_declared", "state": state}
                )
        return self

    def billed(self, t0: int, t1: int, device: int = 0, state: str = "allocated") -> "WrittenRun":
        """What a bill says, in wall-clock time."""
        row = {"k": "paid", "dev": f"cpu:{device}", "host": "h", "t0_wall": t0 + WALL, "t1_wall": t1 + WALL}
        self.paid_rows.append(row | {"basis": "bill", "state": state})
        return self

    def journal(self) -> Journal:
        """The journal as the reader would give it."""
        files = [file for row in self.files if (file := collect(row.rows, row.name))]
        return Journal(
            path=Path("run"),
            run="r",
            ranks=sorted((f for f in files if f.rank is not None), key=lambda f: (f.attempt, f.rank)),
            agents=sorted((f for f in files if f.rank is None), key=lambda f: (f.attempt, f.name)),
            paid=self.paid_rows,
            prices=[],
            beats={(f.attempt, f.rank): self._beat(f) for f in self.files if f.beat_at and f.rank is not None},
            live=self.live,
        )

    def write(self, path: Path) -> Path:
        """The journal as files of a run folder."""
        (path / "events").mkdir(parents=True, exist_ok=True)
        for file in self.files:
            (path / file.name).parent.mkdir(parents=True, exist_ok=True)
            (path / file.name).write_bytes(file.content)
            if file.beat_at and file.rank is not None:
                beat = self._beat(file)
                place = path / "heartbeat" / f"attempt-{file.attempt}-rank-{file.rank}"
                page = HeartbeatPage(place, attempt=file.attempt, rank=file.rank, boot_id=BOOT)
                page.words[:4] = memoryview(_words(beat)).cast("q")
                page.close()
        (path / "paid.jsonl").write_bytes(
            b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self.paid_rows)
        )
        return path

    def _beat(self, file: WrittenFile) -> Beat:
        assert file.beat_at
        assert file.rank is not None
        t, step, seq = file.beat_at
        return Beat(t + self.shift, step, State.STEPPING, seq, file.attempt, file.rank, 1, boot_word(BOOT))


def _words(beat: Beat) -> bytes:
    return b"".join(word.to_bytes(8, "little") for word in (beat.mono_ns, beat.step, beat.state, beat.seq))


def accounts(run: WrittenRun, **options: object) -> dict[str, int]:
    """Where the time of a written run went."""
    return keep_books(run.journal(), **options).accounts  # type: ignore[arg-type]


def one_attempt(run: WrittenRun, *, first: int = 0, start: int = 0, steps: int = 5, length: int = 10 * S) -> int:
    """Steps without a gap from `start`, a commit and a clean end; returns when it ended."""
    rank = run.rank(1, start)
    end = rank.steps(first, first + steps, start, length)
    rank.ckpt(first + steps, end).close(end)
    run.agent(1, start).end(end)
    run.paid(start, end)
    return end
