"""How far apart two runs of one recipe may end that differ in their seed alone: the noise of training."""

import math
from dataclasses import dataclass

from argosy.errors import ArgosyError
from argosy.launch.line_of_steps import line_of_steps
from argosy.recipe.hashes import changed_fields
from argosy.registry.run_folder import RunFolder, find_runs

CONFIDENCE = 0.95
LEAST_SEEDS = 3
"""With two, the estimate of their spread is itself off by a factor of several."""
DEFAULT_SPREAD = 0.004
"""Standard deviation ÷ mean of the final loss over seeds: the largest of the published runs that we evaluated (4.2B
parameters, many epochs, Muennighoff et al. 2023). A single epoch gave 0.0002 to 0.0009 there, and small runs of minutes
more: so runs of other seeds, where there are some, count before it."""


@dataclass(frozen=True)
class SeedBand:
    """Relative difference of loss that :data:`CONFIDENCE` of the pairs of seeds stay within."""

    relative: float
    source: str
    """Where it comes from, for people."""


def seed_band(run: RunFolder) -> SeedBand:
    """The band of `run`: from runs beside it that differ in ``run.seed`` alone, else from the published spread.

    With n seeds whose final evaluations have the standard deviation s, the difference of two more is within
    t(n - 1) · √2 · s: the prediction interval of Student's t.
    """
    losses = _final_losses(run)
    n = len(losses)
    if n < LEAST_SEEDS:
        relative = 1.959964 * math.sqrt(2) * DEFAULT_SPREAD  # the normal quantile of 95 %
        have = "no other seed" if n < 2 else f"only {n} seeds"
        return SeedBand(
            relative, f"the largest published spread of seeds, {DEFAULT_SPREAD:.1%}; {have} of this recipe is beside it"
        )
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    mean = math.fsum(losses) / n
    spread = math.sqrt(math.fsum((loss - mean) ** 2 for loss in losses) / (n - 1)) / mean
    quantile = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    return SeedBand(quantile * math.sqrt(2) * spread, f"the spread of the {n} seeds beside it, {spread:.3%}")


def _final_losses(run: RunFolder) -> list[float]:
    """Loss of the last evaluation of `run`, and of the runs beside it at the same step, one of each other seed."""
    recipe = run.recipe()
    evals = line_of_steps(run.path).evals
    if not evals:
        return []
    last = max(evals)
    by_seed = {recipe.run.seed: evals[last]}
    for other in find_runs(run.path.resolve().parent):
        try:
            theirs = other.recipe()
            if theirs.run.seed in by_seed or changed_fields(recipe, theirs) != ["run.seed"]:
                continue
            loss = line_of_steps(other.path).evals.get(last)
        except ArgosyError:
            continue  # a neighbour that cannot be read says nothing about this run
        if loss is not None:
            by_seed[theirs.run.seed] = loss
    return list(by_seed.values())
