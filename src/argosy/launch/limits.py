"""Limits of phases against what the run itself has measured: one that is too short would end each attempt alike."""

import json

from argosy.errors import UsageError
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder

_SPAN = b'"k":"span"'


def check_limits(run: RunFolder, recipe: Recipe) -> None:
    """Raises UsageError when a phase of the last attempt took longer than `resilience.phase_limit_s` allows."""
    limit_s = recipe.resilience.phase_limit_s
    for phase, seconds in longest_phases(run).items():
        if seconds > limit_s:
            raise UsageError(
                f"{limit_s:g} s is shorter than {phase} of the last attempt, which took {seconds:.1f} s",
                where="resilience.phase_limit_s",
                do=f"give it at least {2 * seconds:.0f}",
            )


def longest_phases(run: RunFolder) -> dict[str, float]:
    """Longest span of each phase that rank 0 of the newest attempt has ended, in seconds."""
    attempts = run.attempts()
    file = run.rank_file(attempts[-1], 0) if attempts else None
    longest: dict[str, float] = {}
    if file is None or not file.exists():
        return longest
    with file.open("rb") as lines:
        for line in lines:
            if _SPAN not in line:
                continue
            try:
                span = json.loads(line)
            except ValueError:  # torn by a kill
                continue
            if span["t1"] is not None:
                longest[span["p"]] = max(longest.get(span["p"], 0.0), (span["t1"] - span["t0"]) / 1e9)
    return longest
