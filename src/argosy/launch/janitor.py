"""Clears what earlier attempts left half done, before a new one starts. Call it with the run's lock held."""

import contextlib
from pathlib import Path

from argosy.registry.run_folder import RunFolder


def sweep(run: RunFolder) -> list[Path]:
    """Remove partial files of writers that were killed; those that were removed.

    Only names that a writer of Argosy gives to its unfinished files are touched, and a foreign file never. Unfinished
    checkpoints are the checkpoint package's own to clear.
    """
    partial = [
        *run.path.glob(".*.tmp"),
        *run.incidents.glob(".*.tmp"),
        *run.control.glob(".stop.*"),
        *run.events.glob("attempt-*/*.tmp"),
        *run.events.glob("attempt-*/store"),
    ]
    removed = []
    for file in partial:
        with contextlib.suppress(OSError):
            file.unlink()
            removed.append(file)
    return removed
