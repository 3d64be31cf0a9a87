"""The audit of a run folder: its journals, its recipe, its data."""

from argosy.data.audit import Audit, Journal, audit
from argosy.data.open_loader import open_loader
from argosy.data.position import Position
from argosy.data.prepare import data_folder, open_data
from argosy.errors import InputError
from argosy.journal.reader import read_rows
from argosy.registry.run_folder import RunFolder

KINDS = {"order", "step", "data", "ckpt"}


def audit_run(run: RunFolder) -> Audit:
    """Audit a run over all its attempts.

    Raises:
        InputError: there are no records to audit, or the data are gone or others.
    """
    recipe = run.recipe()
    journals = []
    for attempt in run.attempts():
        for file in sorted(run.attempt_folder(attempt).glob("rank-*.jsonl")):
            rows = list(read_rows(file))
            if rows and rows[0]["k"] == "header":
                kept = [row for row in rows if row["k"] in KINDS]
                journals.append(Journal(attempt, rows[0]["rank"], rows[0]["world"], kept))
    if not any(row["k"] == "order" for journal in journals for row in journal.records):
        raise InputError("has no records of its data order", where=str(run.path), do="train it with this version first")
    data = open_data(data_folder(recipe), recipe)
    order = open_loader(recipe, data, Position()).order
    return audit(journals, order, order.mixture.limits)
