"""A dry run does what a real rank does and what the inventory says, to the byte, for any layout and world."""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "layout"))
from counting import counted_steps
from test_inventory import WORKS

from argosy.errors import UsageError
from argosy.journal.counting import CollectiveCounter
from argosy.launch.dry_run import dry_run, dry_step
from argosy.layout.inventory import inventory
from argosy.layout.layout import Layout
from argosy.layout.work import Work
from argosy.recipe.load import parse_recipe
from argosy.recipe.model_table import ModelTable
from argosy.recipe.schema import OptimizerTable, Recipe
from ranks import run_ranks
from tiny_runs import leave_default_group

SOME = [name for number, name in enumerate(WORKS) if number % 6 == 0]
"""Every sixth row of the equivalence matrix: each axis, most schedules, and how they go together."""


def recipe_for(work: Work) -> Recipe:
    names = {2: "bf16", 4: "fp32"}
    precision = f"compute = '{names[work.compute_bytes]}'\nreduce = '{names[work.reduce_bytes]}'"
    return parse_recipe(f"[objective]\ntokens = 1e6\n[precision]\n{precision}")


def dry_steps(works: list[Work]) -> list[list[tuple[dict[Any, int], int, bool]]]:
    """Of each work, what each of its ranks did; in a process of its own, since a dry run makes process groups."""
    leave_default_group()
    found = []
    for work in works:
        steps = [dry_step(work, recipe_for(work), rank) for rank in range(work.layout.world_size)]
        found.append([(step.collectives, step.parameters, step.as_told) for step in steps])
    return found


@pytest.mark.dist
def test_the_matrix_is_run_as_it_is_told() -> None:
    (found,) = run_ranks(1, dry_steps, [WORKS[name] for name in SOME], timeout_s=250)
    for name, ranks in zip(SOME, found, strict=True):
        for rank, (collectives, parameters, as_told) in enumerate(ranks):
            told = inventory(WORKS[name], rank)
            assert (collectives, parameters) == (told.counts(), told.parameters), (name, rank)
            assert as_told


@pytest.mark.dist
def test_a_dry_rank_issues_what_a_real_one_does() -> None:
    work = WORKS[next(name for name in SOME if WORKS[name].layout.world_size == 4 and WORKS[name].layout.pp > 1)]
    real = run_ranks(4, counted_steps, [work], OptimizerTable())
    ((*dry,),) = run_ranks(1, dry_steps, [work])[0]
    assert [one[0].collectives for one in real] == [collectives for collectives, _, _ in dry]


def without_recorder(work: Work) -> tuple[dict[Any, int], bool]:
    leave_default_group()
    CollectiveCounter.collective = lambda self, *args: _nothing()  # type: ignore[method-assign]
    step = dry_step(work, recipe_for(work), 0)
    return step.collectives, step.as_told


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


@pytest.mark.dist
def test_without_the_recorder_nothing_is_as_told() -> None:
    work = WORKS[SOME[0]]
    (found,) = run_ranks(1, without_recorder, work)
    assert found == ({}, False)


def thousands() -> tuple[bool, Counter[tuple[str, str, int]], float]:
    leave_default_group()
    layout = Layout(pp=8, dp=4, fsdp=16, tp=8, zero=3, schedule="interleaved_1f1b", virtual_stages=2,
                    micro_batch_sequences=1)  # fmt: skip
    model = ModelTable(preset="llama3-70b")
    work = Work(model, 128_256, layout, 8 * layout.data_ranks, 8192, compute_bytes=2, device="cuda")
    start = time.perf_counter()
    step = dry_step(work, recipe_for(work), 4095)
    return step.as_told, Counter(step.collectives), time.perf_counter() - start


@pytest.mark.dist
def test_the_last_of_4096_ranks() -> None:
    ((as_told, collectives, _),) = run_ranks(1, thousands, timeout_s=200)
    assert as_told
    assert collectives["pp", "send", 8192 * 8192 * 2 // 8] == 8 * 4 - 8  # two stages each way, but none after the loss


def test_what_cannot_be_is_told_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("[objective]\ntokens = 1e6\n[batch]\ntokens = 2048\n")
    with pytest.raises(UsageError, match="there is no rank 2 of 2"):
        dry_run(path, (), 2, 2)
    with pytest.raises(UsageError, match="not divisible by 3 data-parallel ranks"):
        dry_run(path, (), 3, 0)
    with pytest.raises(UsageError, match="5 pipeline stages need at least as many layers"):
        dry_run(path, ("layout.pp=5", "layout.micro_batch_sequences=1"), 5, 0)


def from_the_command_line(words: list[str]) -> tuple[int, str]:
    import contextlib
    import io

    from argosy.cli.main import main

    leave_default_group()
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0), out.getvalue()


@pytest.mark.dist
def test_the_command_prints_json(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("[objective]\ntokens = 1e6\n[batch]\ntokens = 2048\n[layout]\ntp = 2\nfsdp = 2\ncompile = true\n")
    words = ["train", str(path), "--dry-run", "--world-size", "4", "--rank", "3", "--json"]
    ((code, out),) = run_ranks(1, from_the_command_line, words)
    content = json.loads(out)
    assert code == 0
    assert content["schema"] == "argosy.dry-run/1"
    assert content["equals_inventory"] is True
    assert content["coordinates"] == {"pp": 0, "dp": 0, "fsdp": 1, "cp": 0, "tp": 1}
    assert {c["axis"] for c in content["collectives"]} == {"tp", "fsdp"}
    assert not list(tmp_path.glob("runs"))
