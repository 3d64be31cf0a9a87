"""A closed run's books as Parquet under `compact/`, so that a report of ten thousand ranks need not read their files.

`cells.parquet` holds the exact device-nanoseconds of each device by attempt, activity and fate: what a report's sums
are made of. `steps.parquet` holds one short record for each rank and step for pictures, its times rounded to 1 µs.
`books.json` holds what is small. A digest of names and sizes of the journal's files says whether they still belong
together; if not, or while the run is live, the journal itself is read. Nothing outside of `compact/` is touched.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import xxhash
from numpy.typing import NDArray

from argosy.errors import UsageError
from argosy.journal.liveness import is_held
from argosy.journal.reader import Journal, JournalFile, read_run
from argosy.ledger.accounts import FATES, PHYS
from argosy.ledger.books import keep_books
from argosy.ledger.files import write_text

Ints = NDArray[np.int64]
SCHEMA = "argosy.compact/1"
_CELLS = ("device", "attempt", "phys", "fate", "ns")
_SMALL = ("as_of_ns", "imputed", "estimated", "overlapped", "slices", "notes")
_STEPS = ("attempt", "rank", "row", "end_us", "own_us", "comm_us")


@dataclass(frozen=True)
class Compacted:
    """What was written."""

    folder: Path
    devices: int
    step_records: int
    bytes_per_record: float


def compact(run_path: Path, edges_ns: list[int]) -> Compacted:
    """Write `compact/` of a run that is over; `edges_ns` cut the slices of its picture over time.

    Raises UsageError while the run is live, since its books would be out of date at once, and InputError as
    :func:`~argosy.ledger.books.keep_books` does.
    """
    if is_held(run_path / "lock"):
        raise UsageError("the run is live", where=str(run_path), do="compact it when it is over")
    if find_spec("duckdb") is None or find_spec("pyarrow") is None:
        raise UsageError("packages are missing", where="--compact", do="pip install 'argosy[compact]'")
    journal = read_run(run_path)
    cells: list[tuple[str, Ints]] = []
    books = keep_books(journal, edges_ns=edges_ns, on_device=lambda name, found: cells.append((name, found)))
    attempts = [attempt.attempt for attempt in books.attempts]
    folder = run_path / "compact"
    folder.mkdir(exist_ok=True)
    write_cells(folder, _cell_rows(cells, attempts))
    count = write_steps(folder, map(_step_columns, journal.ranks))
    small = {
        "schema": SCHEMA,
        "digest": digest(run_path),
        "leaders": _leaders(journal),
        "edges_ns": edges_ns,
        **{
            name: getattr(books, name) for name in ("as_of_ns", "imputed", "estimated", "overlapped", "slices", "notes")
        },
        "causes": [asdict(cause) for cause in books.causes],
    }
    write_text(folder / "books.json", orjson.dumps(small).decode())
    size = (folder / "steps.parquet").stat().st_size
    return Compacted(folder, len(books.devices), count, size / max(count, 1))


def digest(run_path: Path) -> str:
    """Of names and sizes of everything that the books are kept from."""
    found = xxhash.xxh3_128()
    files = [*(run_path / "events").glob("attempt-*/*.jsonl"), *(run_path / "heartbeat").glob("*")]
    for file in sorted([*files, *(run_path / name for name in ("paid.jsonl", "decisions.jsonl"))]):
        if file.exists():
            found.update(f"{file.relative_to(run_path)} {file.stat().st_size}\n".encode())
    return found.hexdigest()


def _leaders(journal: Journal) -> dict[str, int]:
    """Attempt → the rank whose file goes furthest: it tells the story of the steps."""
    leaders: dict[int, JournalFile] = {}
    for file in journal.ranks:
        best = leaders.get(file.attempt)
        if best is None or file.steps.t1.max(initial=0) > best.steps.t1.max(initial=0):
            leaders[file.attempt] = file
    return {str(attempt): file.rank or 0 for attempt, file in leaders.items()}


# -- tables ------------------------------------------------------------------------------------------


def write_cells(folder: Path, rows: Mapping[str, Any]) -> None:
    """`rows` are columns by the names of `_CELLS`: device, phys and fate as text, the others as integers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    words = {name: pa.array(rows[name], pa.string()).dictionary_encode() for name in ("device", "phys", "fate")}
    numbers = {name: pa.array(rows[name], pa.int64()) for name in ("attempt", "ns")}
    table = pa.table({name: (words | numbers)[name] for name in _CELLS})
    pq.write_table(table, folder / "cells.parquet", compression="zstd")


def write_steps(folder: Path, parts: Iterable[Mapping[str, Ints]]) -> int:
    """Write the records of one rank after the other; the number of records."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.int64() if name == "end_us" else pa.int32()) for name in _STEPS])
    encoding = dict.fromkeys(_STEPS, "DELTA_BINARY_PACKED")
    count = 0
    with pq.ParquetWriter(
        folder / "steps.parquet", schema, compression="zstd", use_dictionary=False, column_encoding=encoding
    ) as writer:
        for part in parts:
            columns = [pa.array(part[name], schema.field(name).type) for name in _STEPS]
            writer.write_table(pa.table(columns, schema=schema))
            count += len(columns[0])
    return count


def _cell_rows(cells: Iterable[tuple[str, Ints]], attempts: list[int]) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {name: [] for name in _CELLS}
    for device, found in cells:
        for a, p, f in np.argwhere(found):
            values = (device, attempts[a], PHYS[p], FATES[f], int(found[a, p, f]))
            for name, value in zip(_CELLS, values, strict=True):
                rows[name].append(value)
    return rows


def _step_columns(file: JournalFile) -> dict[str, Ints]:
    steps, width = file.steps, file.steps.amounts.shape[1]
    talks = np.array([name.startswith("comm.") for name in file.phys[:width]], bool)
    count = len(steps)
    return {
        "attempt": np.full(count, file.attempt),
        "rank": np.full(count, file.rank or 0),
        "row": np.arange(count),
        "end_us": steps.t1 // 1000,  # a stamp: rounded, it shifts no duration
        "own_us": steps.amounts[:, ~talks].sum(axis=1) // 1000,
        "comm_us": steps.amounts[:, talks].sum(axis=1) // 1000,
    }


# -- reading -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compact:
    """A run's `compact/` that fits its journal."""

    folder: Path
    small: dict[str, Any]

    @property
    def leaders(self) -> dict[int, int]:
        """Attempt → the rank that tells its story."""
        return {int(attempt): rank for attempt, rank in self.small["leaders"].items()}

    @classmethod
    def find(cls, run_path: Path) -> "Compact | None":
        """The run's, or None: there is none, it is out of date, or the run is live."""
        file = run_path / "compact" / "books.json"
        if not file.exists() or find_spec("duckdb") is None or is_held(run_path / "lock"):
            return None
        small = orjson.loads(file.read_bytes())
        if small.get("schema") != SCHEMA or small["digest"] != digest(run_path):
            return None
        return cls(file.parent, small)

    def cells(self) -> Iterator[tuple[str, int, str, str, int]]:
        """(device, attempt, phys, fate, ns), exact."""
        import duckdb

        yield from duckdb.execute(
            f"select {', '.join(_CELLS)} from read_parquet($file) order by device",
            {"file": str(self.folder / "cells.parquet")},
        ).fetchall()

    def own_time(self, attempt: int, columns: int, rows: int) -> list[tuple[int, int, float]]:
        """(row of the picture, column, own time in s): ranks and steps in equal parts, the slowest rank of each."""
        import duckdb

        return duckdb.execute(
            """
            with mine as (select rank, row, own_us from read_parquet($file) where attempt = $attempt),
                 size as (select max(rank) + 1 as ranks, max(row) + 1 as steps from mine),
                 parts as (
                     select rank, cast(floor(row * $columns / steps) as int) as part, median(own_us) as own_us
                     from mine, size group by all
                 )
            select cast(floor(rank * least($rows, ranks) / ranks) as int) as line, part, max(own_us) / 1e6
            from parts, size group by all order by all
            """,
            {"file": str(self.folder / "steps.parquet"), "attempt": attempt, "columns": columns, "rows": rows},
        ).fetchall()
