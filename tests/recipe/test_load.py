"""A recipe says what it means, or says in one line what is wrong, where, and what to do."""

from fractions import Fraction
from pathlib import Path

import pytest

from argosy.errors import InputError, UsageError
from argosy.recipe.load import dump_toml, line_of, load_recipe, nearest, parse_recipe
from argosy.recipe.presets import PRESETS

SMALL = "[objective]\ntokens = 1_000_000\n"


def complaint(text: str, *sets: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_recipe(text, sets, where="r.toml")
    return str(caught.value)


def test_reads_a_file_and_overrides(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text(SMALL + '[run]\nname = "a"\n')
    recipe = load_recipe(file, ["run.name=b c", "batch.tokens=16_384", "layout.compile=true", "model.norm=layernorm"])
    assert (recipe.run.name, recipe.batch.tokens, recipe.layout.compile) == ("b c", 16_384, True)
    assert recipe.model.norm == "layernorm"


def test_an_empty_override_returns_to_the_default() -> None:
    text = SMALL + "[checkpoint]\nevery_s = 5\n"
    assert parse_recipe(text).checkpoint.every_s == 5
    assert parse_recipe(text, ["checkpoint.every_s="]).checkpoint.every_s is None


def test_whole_floats_count_and_money_is_exact() -> None:
    recipe = parse_recipe("", ["objective.tokens=1e9", "budget.money=0.1", "budget.price_per_device_hour=2.49"])
    assert recipe.objective.tokens == 1_000_000_000
    assert (recipe.budget.money, recipe.budget.price_per_device_hour) == (Fraction(1, 10), Fraction(249, 100))
    assert parse_recipe(dump_toml(recipe)) == recipe


@pytest.mark.parametrize("preset", PRESETS)
def test_resolved_recipe_parses_to_itself(preset: str) -> None:
    recipe = parse_recipe(SMALL, [f"model.preset={preset}", "data.sequence_length=512", "tokenizer.kind=bytes"])
    assert parse_recipe(dump_toml(recipe)) == recipe


@pytest.mark.parametrize(
    ("text", "sets", "parts"),
    [
        (SMALL + "[model]\nlayer = 3\n", [], ["r.toml:4: unknown key model.layer", "did you mean model.layers?"]),
        (SMALL, ["optimizer.lr=1"], ["--set: unknown key", "did you mean optimizer.learning_rate?"]),
        (SMALL + "[modle]\nlayers = 3\n", [], ["r.toml:3: unknown key modle", "did you mean model?"]),
        (SMALL + "learning_rate = 1.0\n", [], ["r.toml:3", "did you mean optimizer.learning_rate?"]),
        (SMALL + "[model]\nlayers = 0\n", [], ["r.toml:4: model.layers is 0, but must be a whole number ≥ 1"]),
        (SMALL + "[model]\nlayers = true\n", [], ["model.layers is True"]),
        (SMALL + "[schedule]\nkind = 'cosin'\n", [], ["schedule.kind is 'cosin'", "did you mean 'cosine'?"]),
        (SMALL + "[layout]\nfsdp = 0\n", [], ["r.toml:4: layout.fsdp is 0"]),
        (SMALL + "[optimizer]\neps = inf\n", [], ["optimizer.eps is inf"]),
        (SMALL + "[budget]\nmoney = '1/0'\n", [], ["budget.money", "1/0"]),
        ("model = 3\n" + SMALL, [], ["r.toml:1: model is 3, but must be a table"]),
        ("", [], ["the table objective is missing", "objective.tokens"]),
        ("[objective]\n", [], ["objective.tokens is missing", "in tokens"]),
        (SMALL + "[model\n", [], ["r.toml: no valid TOML", "line 3"]),
        (SMALL, ["layers=3"], ["--set: 'layers=3' is no override"]),
        (SMALL, ["objective.tokens.x=3"], ["tokens is a value, not a table"]),
        (SMALL, ["model.heads=3"], ["hidden_size 128 is not divisible by heads 3", "1, 2, 4, 8"]),
        (SMALL, ["model.kv_heads=3"], ["heads 4 is not divisible by kv_heads 3", "1, 2, 4"]),
        (SMALL, ["model.preset=lama3-8b"], ["did you mean 'llama3-8b'?"]),
        (SMALL, ["batch.tokens=300"], ["not a multiple of data.sequence_length 256", "256, 512"]),
        (SMALL, ["model.max_positions=128"], ["data.sequence_length 256 is above model.max_positions 128"]),
        (SMALL, ["model.vocab_size=300"], ["model.vocab_size 300 is below the tokenizer's 4096"]),
        (SMALL, ["schedule.warmup_tokens=2e6"], ["schedule.warmup_tokens 2000000 is above objective.tokens 1000000"]),
        (SMALL, ["checkpoint.every_s=1", "checkpoint.every_steps=1"], ["every_steps or every_s, not both"]),
        (SMALL, ["objective.target_loss=2"], ["need eval.every_steps above 0"]),
        (SMALL, ["budget.money=2"], ["budget.money needs budget.price_per_device_hour"]),
        (SMALL, ["tokenizer.kind=file"], ["`path` goes with kind = 'file'"]),
    ],
)
def test_mistakes_are_named(text: str, sets: list[str], parts: list[str]) -> None:
    message = complaint(text, *sets)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_every_mistake_has_its_line() -> None:
    message = complaint(SMALL + "[model]\nlayer = 3\nheads = 'x'\n[batch]\ntokens = -1\n")
    assert [line.split(": ")[0] for line in message.splitlines()] == ["r.toml:5", "r.toml:4", "r.toml:7"]


def test_missing_file_names_a_near_one(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(SMALL)
    with pytest.raises(InputError, match=r"no such recipe → did you mean .*tiny\.toml\?"):
        load_recipe(tmp_path / "tiney.toml")


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is no UTF-8 text"):
        load_recipe(tmp_path / "x.toml")
    with pytest.raises(InputError, match="cannot be read"):
        load_recipe(tmp_path)


def test_line_of_sees_dotted_keys_and_tables() -> None:
    text = 'run.name = "x"\n[model]\nlayers = 2\n[model.rope_scaling]\nfactor = 2\n'
    assert [line_of(text, key) for key in ("run.name", "model", "model.layers", "model.rope_scaling.factor")] == [
        1,
        2,
        3,
        5,
    ]
    assert line_of(text, "batch.tokens") is None


def test_nothing_near_is_no_guess() -> None:
    assert nearest("xyzzy.qwertz") is None
