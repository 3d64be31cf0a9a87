"""`recipe new` writes recipes that are right, explained, and fit their budget; the ready recipes are right too."""

import json
import tomllib
from pathlib import Path

import pytest

from argosy.cli.main import main
from argosy.errors import InputError, UsageError
from argosy.layout.fits import check_batch
from argosy.layout.layout import Layout
from argosy.recipe.load import load_recipe, parse_recipe
from argosy.recipe.new import Budget, nearest_preset, new_recipe, parse_budget
from argosy.recipe.presets import PRESETS

READY = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize("size", [*PRESETS, "100k", "25M", "8B", "1T"])
def test_every_size_gives_a_recipe_that_is_right(size):
    text = new_recipe("mine", size)
    recipe = parse_recipe(text)
    assert recipe.total_steps >= 100
    assert recipe.eval.every_steps <= recipe.total_steps
    assert all("#" in line for line in text.splitlines() if "=" in line), "every line is explained"


@pytest.mark.parametrize(
    ("budget", "means"),
    [
        ("2B tokens", Budget(tokens=2_000_000_000)),
        ("300k tokens", Budget(tokens=300_000)),
        ("12h", Budget(device_hours=12.0)),
        ("1.5 device-hours", Budget(device_hours=1.5)),
        ("50 EUR", Budget(money="50", currency="EUR")),
        ("auto", Budget()),
    ],
)
def test_budgets(budget, means):
    assert parse_budget(budget) == means


def test_the_budget_is_in_the_recipe():
    by_tokens = parse_recipe(new_recipe("mine", "3M", budget="20M tokens"))
    assert abs(by_tokens.objective.tokens / 20e6 - 1) < 0.01
    by_money = parse_recipe(new_recipe("mine", "3M", budget="50 EUR", price_per_device_hour="2.49"))
    assert (str(by_money.budget.money), by_money.budget.currency) == ("50", "EUR")
    assert parse_recipe(new_recipe("mine", "3M", budget="12h")).budget.device_hours == 12


@pytest.mark.parametrize(
    ("size", "preset"), [("25M", "argosy-25m"), ("7B", "llama3-8b"), ("70b", "llama3-70b"), ("1", "argosy-0.5m")]
)
def test_the_nearest_preset(size, preset):
    assert nearest_preset(size) == preset


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"size": "big"}, UsageError, "is no size"),
        ({"size": "0"}, UsageError, "has parameters"),
        ({"size": "1.2.3M"}, UsageError, "no readable number"),
        ({"budget": "plenty"}, UsageError, "is no budget"),
        ({"budget": "50 USD"}, UsageError, "needs a price"),
        ({"data": "/nowhere"}, InputError, "argosy data build"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_a_remedy(arguments, error, says):
    with pytest.raises(error, match=says):
        new_recipe("mine", **arguments)


def test_data_with_a_tokenizer_of_its_own(tmp_path):
    manifest = {"tokenizer": {"kind": "bpe", "asked_vocab_size": 777}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    recipe = parse_recipe(new_recipe("mine", "3M", data=str(tmp_path)))
    assert (recipe.tokenizer.kind, recipe.tokenizer.vocab_size) == ("bpe", 777)
    manifest["tokenizer"]["kind"] = "file"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    recipe = parse_recipe(new_recipe("mine", "3M", data=str(tmp_path)))
    assert recipe.tokenizer.path == str(tmp_path / "tokenizer.json")


def test_the_door_writes_a_file_once(tmp_path, capsys):
    file = tmp_path / "mine.toml"
    for code in (0, 64):
        with pytest.raises(SystemExit) as end:
            main(["recipe", "new", str(file), "--size", "3M"])
        assert (end.value.code or 0) == code
    assert "exists already" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["recipe", "check", str(file)])
    assert "is right" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["recipe", "new", "--json"])
    assert json.loads(capsys.readouterr().out)["recipe"] == tomllib.loads(new_recipe("new"))


@pytest.mark.parametrize(("name", "ranks"), [("laptop", 1), ("laptop", 4), ("llama3-8b-node", 8), ("llama3-70b", 256)])
def test_ready_recipes_fit_the_machines_that_they_are_for(name, ranks):
    recipe = load_recipe(READY / f"{name}.toml")
    check_batch(Layout.from_recipe(recipe.layout, ranks), recipe.batch_sequences)


@pytest.mark.parametrize("file", sorted(READY.glob("*.toml")), ids=lambda file: file.stem)
def test_every_ready_recipe_is_right(file):
    assert load_recipe(file).run.name
