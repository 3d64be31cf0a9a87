"""Each field of the schema, perturbed, changes the hashes that its mark says, and no other."""

from typing import Any, get_args

import pytest

from argosy.recipe.field import Affects
from argosy.recipe.hashes import changed_fields, hashes
from argosy.recipe.knobs import knobs, values
from argosy.recipe.load import dump_toml, parse_recipe
from argosy.recipe.schema import Recipe

# every optional field has a value here, so that each can be perturbed alone
BASE = parse_recipe(
    """
[init]
from = "runs/a"
[model]
vocab_size = 5000
head_dim = 32
[model.rope_scaling]
[objective]
tokens = 1_000_000
target_loss = 2.0
patience_evals = 3
min_gain = 0.01
[eval]
every_steps = 10
tokens = 1000
stride_share = 0.5
[data]
digest = "abc"
[tokenizer]
kind = "file"
path = "t.json"
[checkpoint]
every_steps = 10
keep_every_steps = 20
keep_before_steps = 20
[budget]
money = "5"
device_hours = 1.0
deadline_s = 9.0
price_per_device_hour = "1"
[layout]
micro_batch_sequences = 2
[schedule]
warmup_tokens = 1000
"""
)
LEAVES = list(values(BASE))


def other_values(key: str) -> list[Any]:
    """Candidates for another value of the field `key`, from its type and present value."""
    now, kind = values(BASE)[key], knobs()[key].kind
    if key == "model.preset":
        return ["gpt2"]
    if key == "data.sources":
        return [[{"name": "a", "folder": "b"}]]
    if key in ("layout.zero", "layout.stage_layers"):
        return [2, [1, 2]]
    if key == "layout.order":
        return [now[::-1]]
    if isinstance(now, bool):
        return [not now]
    if choices := [part.strip('"') for part in kind.split(" | ") if part.startswith('"')]:
        candidates: list[Any] = [choice for choice in choices if choice != now]
        return [*candidates, 2] if "whole number" in kind else candidates
    if isinstance(now, int):
        return [now * 2, now + 2, now + 1, now // 2]
    if isinstance(now, float):
        return [now / 2, now * 2, now + 0.5]
    if now is None:
        return [7, "x"]
    if kind.startswith("exact number"):
        return [f"{now}1"]
    if key == "budget.currency":
        return ["EUR"]
    return [f"{now}x"]


def perturbed(key: str) -> Recipe | None:
    """BASE with another value of one field, when some value of that field fits with all the others."""
    if knobs()[key].limits == ("≥ 1", "≤ 1"):  # a degree that this version cannot train with has one legal value
        degree = {key.removeprefix("layout."): 2}
        return BASE.model_copy(update={"layout": BASE.layout.model_copy(update=degree)})
    for value in other_values(key):
        if value == values(BASE)[key]:
            continue
        tree = BASE.model_dump(mode="json", by_alias=True, exclude_none=True)
        *tables, name = key.split(".")
        table = tree
        for part in tables:
            table = table[part]
        table[name] = value
        # a tokenizer of another kind has no path
        if key == "tokenizer.kind":
            del table["path"]
        # what is clipped cannot be updated in backward
        if key == "layout.update_in_backward":
            tree["optimizer"]["clip_norm"] = 0.0
        # one of the two intervals at a time
        if key == "checkpoint.every_s":
            del table["every_steps"]
        try:
            return Recipe.model_validate(tree)
        except ValueError:
            continue
    return None


@pytest.mark.parametrize("key", LEAVES)
def test_each_field_changes_the_hashes_that_its_mark_says(key: str) -> None:
    recipe = perturbed(key)
    assert recipe is not None, f"no other value of {key} fits"
    before, after = hashes(BASE), hashes(recipe)
    changed = {knobs()[name].affects for name in LEAVES if values(BASE).get(name) != values(recipe).get(name)}
    assert knobs()[key].affects in changed
    assert after.recipe_hash != before.recipe_hash
    assert (after.learning_hash != before.learning_hash) == ("learn" in changed)
    assert (after.running_hash != before.running_hash) == ("run" in changed)
    assert key in changed_fields(BASE, recipe, {"learn", "run", "books"})
    assert bool(changed_fields(BASE, recipe)) == ("learn" in changed)


def test_the_sweep_reaches_every_field_of_the_schema() -> None:
    of_lists = {key for key in knobs() if key.startswith("data.sources.")}
    assert set(LEAVES) | {"model.rope_scaling"} | of_lists == set(knobs())


def test_hashes_do_not_depend_on_how_a_recipe_was_written() -> None:
    short = parse_recipe("[objective]\ntokens = 1e6\n[model]\npreset = 'argosy-3m'")
    assert hashes(parse_recipe(dump_toml(short))) == hashes(short)


def test_every_field_says_what_it_means() -> None:
    for knob in knobs().values():
        assert knob.doc, knob.key
        assert knob.affects in get_args(Affects), knob.key
