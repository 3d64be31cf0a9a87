"""The fault catalogue on real runs: one trial each, judged from outside. `make chaos` runs all of it, again and again.

By default a tenth of the sweep runs: one variant of each kind of cause. Which rank is guilty, and when, is drawn anew
each time; ``ARGOSY_CHAOS_SEED`` repeats a case.
"""

import os
import random
from pathlib import Path

import pytest

from argosy.drill.drill import one_line, trial
from argosy.drill.faults import VARIANTS, Variant
from argosy.drill.scene import Stage
from tiny_runs import RECIPE, SMALL

SETS = tuple(one for one in SMALL if one.split(".")[0] in ("model", "data", "batch"))
ALWAYS = {
    "F01 in backward",
    "F02 in a collective",
    "F03 endless loop",
    "F04 in a step",
    "F05 segmentation fault",
    "F07 _exit(0)",
    "F10 in steady state",
    "F23 parameter",
    "F24 NaN",
    "F28 to the launcher",
    "F30 the same crash for ever",
}
SPEED = {"O5", "O10"}
"""Seconds against budgets and wall clocks: bench/recovery.py has them, a shared machine cannot promise them."""


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("faults"), RECIPE, 3, 60, SETS)


@pytest.mark.chaos
@pytest.mark.dist
@pytest.mark.parametrize(
    "variant",
    [pytest.param(one, id=one.id, marks=() if one.id in ALWAYS else pytest.mark.slow) for one in VARIANTS],
)
def test_a_fault_is_seen_blamed_mended_and_leaves_no_trace(stage: Stage, variant: Variant, tmp_path: Path) -> None:
    seed = int(os.environ.get("ARGOSY_CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    found = trial(stage, variant, random.Random(f"{seed} {variant.id}"), keep=True)
    if found.skipped:
        pytest.skip(found.skipped)
    broken = {name for name, answer in found.oracles.items() if answer is False} - SPEED
    assert not broken, f"ARGOSY_CHAOS_SEED={seed}: {one_line(found)}"
