"""A table of results as it was written: columns of text, filters, and which column means what."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from argosy.errors import InputError, UsageError
from argosy.laws.surfaces import Array, Mask

ROLES = {
    "N": ("n", "params", "parameters", "n_params", "num_params", "model_params", "n_non_embed", "model_size"),
    "D": ("d", "tokens", "train_tokens", "training_tokens", "n_tokens", "num_tokens"),
    "C": ("c", "flops", "flop", "compute", "flops_6nd", "compute_flops", "training_flop", "total_flops"),
    "U": ("u", "unique_tokens", "unique", "n_unique_tokens"),
    "epochs": ("epochs", "epoch", "repeats"),
    "price": ("price", "cost", "cost_usd", "dollars"),
    "seed": ("seed", "rerun"),
    "run": ("run", "run_id", "run_name"),
    "step": ("step", "last_step", "steps"),
    "planned_steps": ("planned_steps", "total_steps", "horizon_steps"),
    "schedule_fraction": ("schedule_fraction", "fraction"),
    "diverged": ("diverged",),
    "duplicate_of": ("duplicate_of",),
    "lr": ("lr", "learning_rate"),
}
"""Column names that are understood without being told, lower case, by meaning."""

_FILTER = re.compile(r"^\s*([^<>=!]+?)\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*$")


@dataclass(frozen=True)
class Table:
    """Columns by name, every cell as text; `where` names the file in messages. `lines` are the file's line numbers."""

    columns: dict[str, list[str]]
    where: str
    lines: list[int]

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> list[str]:
        """A column by its exact name."""
        if name not in self.columns:
            raise UsageError(f"no column {name!r}", where=self.where, do=f"choose one of: {', '.join(self.columns)}")
        return self.columns[name]

    def numbers(self, name: str) -> Array:
        """A column as numbers; an empty cell or a word like nan is NaN, any other word an error."""
        values = np.empty(len(self))
        for i, cell in enumerate(self.column(name)):
            try:
                values[i] = float(cell) if cell.strip() else np.nan
            except ValueError:
                raise InputError(
                    f"column {name!r}: {cell!r} is no number", where=f"{self.where}:{self.lines[i]}", do="mend the cell"
                ) from None
        return values

    def find(self, role: str) -> str | None:
        """The column that plays `role` by its name, or None."""
        for name in self.columns:
            if name == role:
                return name
        known = ROLES.get(role, (role.lower(),))
        return next((name for name in self.columns if name.lower() in known), None)

    def take(self, keep: Iterable[int]) -> "Table":
        """The rows of the given indices."""
        keep = list(keep)
        columns = {name: [cells[i] for i in keep] for name, cells in self.columns.items()}
        return Table(columns, self.where, [self.lines[i] for i in keep])

    def filter(self, conditions: Sequence[str]) -> "Table":
        """Rows that meet all conditions: ``column OP value`` with OP one of = != < <= > >=; `a|b` offers choices."""
        keep = np.ones(len(self), bool)
        for condition in conditions:
            for part in condition.split(","):
                keep &= self._meets(part)
        return self.take(np.flatnonzero(keep))

    def _meets(self, condition: str) -> Mask:
        match = _FILTER.match(condition)
        if not match:
            raise UsageError(f"no condition: {condition!r}", do="write it like flops<=1e21 or dataset=c4|pile")
        name, operator, value = match.groups()
        if operator in ("=", "!="):
            equal = np.array([any(_same(cell, choice) for choice in value.split("|")) for cell in self.column(name)])
            return equal if operator == "=" else np.logical_not(equal)
        try:
            bound = float(value)
        except ValueError:
            raise UsageError(f"{value!r} is no number in {condition!r}") from None
        cells = self.numbers(name)
        with np.errstate(invalid="ignore"):
            return {"<": cells < bound, "<=": cells <= bound, ">": cells > bound, ">=": cells >= bound}[operator]

    def groups(self, names: Sequence[str]) -> list[tuple[dict[str, str], "Table"]]:
        """One table per combination of values of the columns, in order of appearance; one group without columns."""
        keys = list(zip(*(self.column(name) for name in names), strict=True)) if names else [()] * len(self)
        return [
            (dict(zip(names, key, strict=True)), self.take([i for i, other in enumerate(keys) if other == key]))
            for key in dict.fromkeys(keys)
        ]


def read_table(path: Path) -> Table:
    """Read a CSV or Parquet file; errors name the file and the line."""
    if not path.is_file():
        raise InputError("no such file", where=str(path), do="give a CSV or Parquet file of results")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            header = next(reader, None)
            if not header or any(not name.strip() for name in header) or len(set(header)) != len(header):
                raise InputError("the first line must name every column once", where=f"{path}:1", do="add a header")
            lines, rows = [], []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(
                        f"{len(row)} cells under {len(header)} columns", where=f"{path}:{reader.line_num}", do="mend it"
                    )
                lines.append(reader.line_num)
                rows.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a CSV file: {error}", where=str(path), do="save it as UTF-8 CSV") from None
    if not rows:
        raise InputError("no rows", where=str(path), do="give a table of finished runs")
    return Table(
        {name.strip(): list(cells) for name, cells in zip(header, zip(*rows, strict=True), strict=True)},
        str(path),
        lines,
    )


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow.parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise InputError(
            "reading Parquet needs pyarrow", where=str(path), do="pip install pyarrow, or export CSV"
        ) from None
    try:
        data = pyarrow.parquet.read_table(path).to_pydict()
    except pyarrow.ArrowException as error:
        raise InputError(f"not a Parquet file: {error}", where=str(path), do="export it again") from None
    columns = {name: ["" if value is None else str(value) for value in cells] for name, cells in data.items()}
    rows = len(next(iter(columns.values()), []))
    if not rows:
        raise InputError("no rows", where=str(path), do="give a table of finished runs")
    return Table(columns, str(path), list(range(1, rows + 1)))


def parse_point(text: str) -> dict[str, str]:
    """``N=1e9,D=2e10`` as a mapping."""
    point = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(f"no point: {text!r}", do="write it like N=1e9,D=2e10")
        point[name.strip()] = value.strip()
    return point


def number(point: Mapping[str, str], name: str) -> float:
    """A positive number of a point."""
    try:
        value = float(point[name])
    except ValueError:
        raise UsageError(f"{name}={point[name]!r} is no number") from None
    if not (0 < value < np.inf):
        raise UsageError(f"{name}={point[name]} must be positive and finite")
    return value


def _same(cell: str, value: str) -> bool:
    if cell == value:
        return True
    try:
        return float(cell) == float(value)
    except ValueError:
        return False
