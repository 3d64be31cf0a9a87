"""What enters a fit: the table's rows with their units checked, and a list of what was wrong.

A problem is either *refused* (nothing may be concluded: an :class:`InputError`) or *flagged* (the rows named are left
out, or kept with a warning). Nothing is averaged in silence.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from argosy.errors import InputError, UsageError
from argosy.lab.runs import Runs, require_spread
from argosy.lab.table import ROLES, Table
from argosy.laws.surfaces import Array, Mask

FLOPS_OVER_6ND = (0.5, 2.0)
"""Logged FLOPs over 6·N·D: head, attention, embeddings explain up to 2 at small sizes; a unit mistake is 3 or more."""
FLOPS_REMARK = (0.9, 1.15)
MUST_BE_ONE = (
    "tokenizer",
    "vocab",
    "vocab_size",
    "validation_set",
    "val_set",
    "eval_set",
    "loss_split",
    "dataset",
    "corpus",
    "metric",
)
"""Columns that make losses incomparable when they hold more than one value."""
FINISHED = 0.99
LARGEST_LOSS = 15.0
"""Nats per token; above ln of any vocabulary in use, so the run has diverged or the unit is another."""
CURVE_ROWS = 10


@dataclass(frozen=True)
class Problem:
    """Something wrong with rows of the table; `dropped` says how many were left out."""

    kind: str
    what: str
    rows: int
    dropped: bool

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {"kind": self.kind, "what": self.what, "rows": self.rows, "dropped": self.dropped}


@dataclass(frozen=True)
class Entry:
    """Runs that passed, the table's rows they come from, and the problems found on the way."""

    runs: Runs
    table: Table
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class Roles:
    """Which column is which; `axis` alone means a one-dimensional fit."""

    loss: str
    parameters: str | None = None
    tokens: str | None = None
    compute: str | None = None
    unique: str | None = None
    epochs: str | None = None
    axis: str | None = None

    @property
    def axis_kind(self) -> str:
        """C for compute, else the column's own name."""
        assert self.axis is not None
        return "C" if self.axis == "C" or self.axis.lower() in ROLES["C"] else self.axis


def roles_of(table: Table, x: Sequence[str], y: str) -> Roles:
    """Read ``--x``: names of columns or of roles (N, D, C, U, epochs), or ROLE=COLUMN."""
    table.column(y)
    chosen: dict[str, str] = {}
    for item in x:
        role, equals, column = item.partition("=")
        if not equals:
            column = role if role in table.columns else table.find(role) or role
            role = next((r for r, names in ROLES.items() if role == r or column.lower() in names), column)
        table.column(column)
        if role in chosen:
            raise UsageError(f"--x names {role} twice", do="give each axis once")
        chosen[role] = column
    if "N" in chosen and "D" in chosen:
        unknown = set(chosen) - {"N", "D", "C", "U", "epochs"}
        if unknown:
            raise UsageError(
                f"--x {', '.join(sorted(unknown))} has no meaning beside N and D", do="use N, D, C, U, epochs"
            )
        return Roles(
            y,
            chosen["N"],
            chosen["D"],
            chosen.get("C") or table.find("C"),
            chosen.get("U") or table.find("U"),
            chosen.get("epochs") or table.find("epochs"),
        )
    if "C" in chosen and len(chosen) == 2 and ("N" in chosen or "D" in chosen):
        raise UsageError("--x C,N needs D too", do="give --x N,D; the FLOPs column is found by its name")
    if len(chosen) != 1:
        raise UsageError(f"--x {','.join(x)}", do="give N,D (with C, U or epochs beside them), or one axis such as C")
    return Roles(y, axis=next(iter(chosen.values())))


def enter(table: Table, roles: Roles, *, best: bool = False, wanted: bool = True) -> Entry:
    """Check `table` and turn it into runs; with `best` only the best run of each configuration.

    `wanted` False skips the demand for enough spread: rows to be forecast need none.
    """
    problems: list[Problem] = []
    _refuse_mixtures(table, roles, problems)
    table = _without_bad_losses(table, roles, problems)
    table = _without_copies(table, roles, problems)
    table = _without_unfinished(table, roles, problems)
    runs = _arrays(table, roles)
    table, runs = _positive(table, runs, problems)
    if roles.axis is None:
        _check_flops(table, runs, roles, problems)
    if wanted:
        require_spread(runs, table.where)
    table, runs = _cells(table, runs, best, problems)
    return Entry(runs, table, problems)


def _refuse_mixtures(table: Table, roles: Roles, problems: list[Problem]) -> None:
    sizes = table.column(roles.parameters) if roles.parameters else [""] * len(table)
    for name, cells in table.columns.items():
        values = [value for value in dict.fromkeys(cells) if value.strip()]
        if len(values) < 2:
            continue
        if name.lower() in MUST_BE_ONE:
            raise InputError(
                f"losses of different {name} are not comparable: {', '.join(values[:4])}",
                where=table.where,
                do=f"fit each alone with --group {name}, or choose one with --where {name}={values[0]}",
            )
        known = {alias for names in ROLES.values() for alias in names}
        if name.lower() in known or _numeric(values) or len(values) > 12 or len(table) < 3 * len(values):
            continue
        if len(set(zip(cells, sizes, strict=True))) > max(
            len(values), len(set(sizes))
        ):  # else another name of the size
            problems.append(
                Problem(
                    "mixed",
                    f"{name} has {len(values)} values ({', '.join(values[:4])}) that are fitted as one recipe; "
                    f"--group {name} fits each alone",
                    len(table),
                    False,
                )
            )


def _without_bad_losses(table: Table, roles: Roles, problems: list[Problem]) -> Table:
    loss = table.numbers(roles.loss)
    diverged = table.find("diverged")
    marked = np.array(
        [cell.strip().lower() in ("1", "true", "yes") for cell in table.column(diverged)]
        if diverged
        else [False] * len(table)
    )
    missing = np.logical_not(np.isfinite(loss)) | (loss <= 0)
    with np.errstate(invalid="ignore"):
        wild = marked | (loss > LARGEST_LOSS)
    bad = missing | wild
    if bad.all():
        raise InputError(
            f"all {len(table)} runs diverged or have no loss", where=table.where, do="give runs that finished"
        )
    if missing.any():
        problems.append(
            Problem(
                "no_loss", f"{_lines(table, missing)}: loss is missing, NaN or not positive", int(missing.sum()), True
            )
        )
    only = wild & np.logical_not(missing)
    if only.any():
        problems.append(
            Problem(
                "diverged",
                f"{_lines(table, only)}: marked diverged or loss above {LARGEST_LOSS:g}",
                int(only.sum()),
                True,
            )
        )
    return table.take(np.flatnonzero(np.logical_not(bad)))


def _without_copies(table: Table, roles: Roles, problems: list[Problem]) -> Table:
    marked = table.find("duplicate_of")
    identity = [name for name in table.columns if name != table.find("run")]
    seen: set[tuple[str, ...]] = set()
    copies = np.zeros(len(table), bool)
    for i, cells in enumerate(zip(*(table.columns[name] for name in identity), strict=True)):
        # a loss written with four or more digits after the point does not repeat by chance together with all else
        digits = len(table.column(roles.loss)[i].partition(".")[2])
        repeated = cells in seen and (digits >= 4 or len(identity) == len(table.columns))
        copies[i] = repeated or bool(marked and table.columns[marked][i].strip())
        seen.add(cells)
    if copies.any():
        problems.append(Problem("duplicate", f"{_lines(table, copies)}: copies of other rows", int(copies.sum()), True))
    return table.take(np.flatnonzero(np.logical_not(copies)))


def _without_unfinished(table: Table, roles: Roles, problems: list[Problem]) -> Table:
    run, step, tokens = table.find("run"), table.find("step"), roles.tokens
    early = np.zeros(len(table), bool)
    order = table.numbers(step) if step else table.numbers(tokens) if tokens else None
    if run and order is not None:
        last: dict[str, float] = {}
        for name, at in zip(table.column(run), order, strict=True):
            last[name] = max(at, last.get(name, -np.inf))
        early |= np.array([at < last[name] for name, at in zip(table.column(run), order, strict=True)])
    fraction, planned = table.find("schedule_fraction"), table.find("planned_steps")
    if fraction:
        early |= table.numbers(fraction) < FINISHED
    elif planned and step:
        early |= table.numbers(step) < FINISHED * table.numbers(planned)
    if early.any():
        problems.append(
            Problem(
                "intermediate",
                f"{int(early.sum())} checkpoints from before the end of their run: a loss before the decay is not "
                "the loss of a shorter run",
                int(early.sum()),
                True,
            )
        )
    table = table.take(np.flatnonzero(np.logical_not(early)))
    if not len(table):
        raise InputError("no finished run in the table", where=table.where, do="give the last row of each run")
    if not run and roles.parameters and tokens:
        _refuse_curves(table, roles)
    return table


def _refuse_curves(table: Table, roles: Roles) -> None:
    """Many rows of one size at even steps of tokens are one run's curve, even without a run column."""
    assert roles.parameters is not None
    assert roles.tokens is not None
    sizes, tokens = table.numbers(roles.parameters), table.numbers(roles.tokens)
    for size, count in Counter(sizes.tolist()).items():
        steps = np.diff(np.unique(tokens[sizes == size]))
        if count >= CURVE_ROWS and len(steps) >= CURVE_ROWS - 1 and np.ptp(steps) < 0.02 * steps.mean():
            raise InputError(
                f"{count} rows of N = {size:g} at even steps of tokens look like checkpoints of one run",
                where=table.where,
                do="give the last row of each run, or add a column run or schedule_fraction",
            )


def _arrays(table: Table, roles: Roles) -> Runs:
    loss = table.numbers(roles.loss)
    if roles.axis is not None:
        return Runs.on_axis(roles.axis_kind, table.numbers(roles.axis), loss)
    assert roles.parameters is not None
    assert roles.tokens is not None
    n, d = table.numbers(roles.parameters), table.numbers(roles.tokens)
    unique: Array | None = None
    if roles.unique:
        unique = table.numbers(roles.unique)
        unique = np.where(np.isnan(unique), d, unique)
    elif roles.epochs:
        epochs = table.numbers(roles.epochs)
        unique = d / np.where(np.isnan(epochs), 1.0, np.maximum(epochs, 1.0))
    flops = table.numbers(roles.compute) if roles.compute else 6 * n * d
    return Runs(n, d, np.where(np.isnan(flops), 6 * n * d, flops), loss, unique)


def _positive(table: Table, runs: Runs, problems: list[Problem]) -> tuple[Table, Runs]:
    with np.errstate(invalid="ignore"):
        good = (runs.parameters > 0) & (runs.tokens > 0) & (runs.compute_flops > 0)
    bad = np.logical_not(good)
    if bad.all():
        raise InputError("no row has positive sizes", where=table.where, do="check --x")
    if bad.any():
        problems.append(
            Problem("no_size", f"{_lines(table, bad)}: N, D or C missing or not positive", int(bad.sum()), True)
        )
    keep = np.flatnonzero(good)
    return table.take(keep), runs.take(keep)


def _check_flops(table: Table, runs: Runs, roles: Roles, problems: list[Problem]) -> None:
    if not roles.compute:
        return
    ratio = runs.compute_flops / (6 * runs.parameters * runs.tokens)
    low, high = FLOPS_OVER_6ND
    off = (ratio < low) | (ratio > high)
    if off.any():
        raise InputError(
            f"{_lines(table, off)}: {roles.compute} is {float(np.median(ratio[off])):.3g} times 6·N·D "
            f"({int(off.sum())} of {len(runs)} rows)",
            where=table.where,
            do="give all columns in one unit (FLOPs, parameters, tokens), or leave the FLOPs column out",
        )
    if ratio.min() < FLOPS_REMARK[0] or ratio.max() > FLOPS_REMARK[1]:
        problems.append(
            Problem(
                "flops",
                f"{roles.compute} is {ratio.min():.2f} to {ratio.max():.2f} times 6·N·D: head, attention or embeddings "
                "are counted on one side only",
                len(runs),
                False,
            )
        )


def _cells(table: Table, runs: Runs, best: bool, problems: list[Problem]) -> tuple[Table, Runs]:
    """Configurations with several runs: seeds if close, a sweep if not."""
    keys = list(
        zip(
            runs.parameters,
            runs.tokens,
            runs.unique_tokens if runs.unique_tokens is not None else runs.tokens,
            strict=True,
        )
    )
    cells: dict[tuple[float, ...], list[int]] = {}
    for i, key in enumerate(keys):
        cells.setdefault(key, []).append(i)
    if best:
        keep = sorted(min(rows, key=lambda i: runs.loss[i]) for rows in cells.values())
        if len(keep) < len(runs):
            problems.append(
                Problem(
                    "sweep", "only the best run of each configuration is kept (--best)", len(runs) - len(keep), True
                )
            )
        return table.take(keep), runs.take(np.array(keep))
    wide = [
        rows for rows in cells.values() if len(rows) > 1 and np.ptp(runs.loss[rows]) > 0.01 * runs.loss[rows].mean()
    ]
    if wide:
        problems.append(
            Problem(
                "sweep",
                f"{len(wide)} configurations have runs more than 1 % apart: a sweep of settings, not seeds? "
                "--best keeps the best of each",
                sum(map(len, wide)),
                False,
            )
        )
    return table, runs


def _lines(table: Table, which: Mask) -> str:
    lines = [table.lines[i] for i in np.flatnonzero(which)]
    return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:5]))}{' …' * (len(lines) > 5)}"


def _numeric(values: Sequence[str]) -> bool:
    try:
        [float(value) for value in values]
    except ValueError:
        return False
    return True
