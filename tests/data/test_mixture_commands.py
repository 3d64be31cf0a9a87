"""`argosy data mix | sample | verify` on two data sets, and what is wrong with a mixture."""

import json

import pytest
from texts import Texts
from typer.testing import CliRunner

from argosy.cli.main import build_app
from argosy.data.build import Options, TokenizerSpec, build_data_set
from argosy.data.prepare import open_data, prepare
from argosy.errors import InputError, UsageError
from argosy.recipe.load import load_recipe

RECIPE = """
[data]
sequence_length = 32
cache = "{folder}/cache"
[[data.sources]]
name = "a"
folder = "{folder}/a"
weight = 0.75
[[data.sources]]
name = "b"
folder = "{folder}/b"
weight = 0.25
later = [{{ tokens = 3200, weight = 2.25 }}]
[tokenizer]
kind = "bytes"
[batch]
tokens = 320
[objective]
tokens = 6400
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    for name in "ab":
        texts = Texts(tuple(f"{name}{number} " + "word " * (number % 13) for number in range(100)))
        options = Options(held_out_share=0.1)
        build_data_set(texts, folder / name, TokenizerSpec("bytes"), options, say=lambda line: None)
    (folder / "r.toml").write_text(RECIPE.format(folder=folder))
    return folder


def argosy(*words):
    result = CliRunner().invoke(build_app(), [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_mix_says_what_a_run_will_draw(folder):
    found = json.loads(argosy("data", "mix", folder / "r.toml", "--json").stdout)
    assert (found["samples"], found["tokens"]) == (200, 6400)
    a, b = found["sources"]
    assert a["weights"] == [[0, 0.75], [3200, 0.25]]
    assert b["weights"] == [[0, 0.25], [3200, 0.75]]
    assert (a["drawn"], b["drawn"]) == (100, 100)
    assert b["repeated"] == pytest.approx(max(0, 100 - b["samples"]) / 100)
    text = argosy("data", "mix", folder / "r.toml").stdout
    assert "weights from token 0 on: a 0.75, b 0.25" in text
    assert "weights from token 3,200 on: a 0.25, b 0.75" in text
    assert "than 0.50 samples" in text


@pytest.mark.parametrize("packing", ["split", "best_fit"])
def test_sample_shows_what_stands_at_an_index(folder, packing):
    sets = ("--set", f"data.packing={packing}", "--set", "data.document_masks=true")
    words = ("data", "sample", folder / "r.toml", "--first", 150, "--count", 20, *sets)
    found = json.loads(argosy(*words, "--json").stdout)["samples"]
    assert [one["index"] for one in found] == list(range(150, 170))
    assert {one["source"] for one in found} == {"a", "b"}
    for one in found:
        assert one["loss_tokens"] + one["pad_tokens"] <= 32
        if packing == "best_fit":
            assert one["loss_tokens"] + one["pad_tokens"] == 32
            assert one["documents"] >= 1
    assert "── index 150: " in argosy(*words).stdout


def test_verify_agrees_with_inspect(folder):
    found = json.loads(argosy("data", "verify", folder / "a", "--json").stdout)
    assert found["digest"] == json.loads(argosy("data", "inspect", folder / "a", "--json").stdout)["digest"]
    assert "all digests right" in argosy("data", "verify", folder / "a").stdout


def test_mixtures_that_cannot_be(folder, tmp_path):
    spec = TokenizerSpec("bpe", 270)
    build_data_set(Texts(tuple(f"c {n}" for n in range(50))), tmp_path / "c", spec, Options(), say=lambda line: None)
    for sources, error, message in (
        (f'{{name="a",folder="{folder}/a"}},{{name="c",folder="{tmp_path}/c"}}', UsageError, "different tokenizers"),
        (f'{{name="a",folder="{folder}/a",weight=0.0}}', UsageError, "sum to 0 from 0 tokens on"),
        (f'{{name="a",folder="{folder}/a",later=[{{tokens=9,weight=0}}]}}', UsageError, "sum to 0 from 9 tokens on"),
        (
            f'{{name="a",folder="{folder}/a"}},{{name="a",folder="{folder}/b"}}',
            UsageError,
            "two sources are called 'a'",
        ),
        ('{name="a"}', UsageError, r"data\.sources\.folder is missing"),
        (f'{{name="a",foldr="{folder}/a"}}', UsageError, r"data\.sources\.foldr → did you mean data\.sources\.folder"),
        (f'{{name="a",folder="{folder}/a",epochs=0.5}}', InputError, "the epochs of all sources end after"),
        (f'{{name="a",folder="{folder}/nothing"}}', InputError, "no such data folder"),
    ):
        with pytest.raises(error, match=message):
            argosy("data", "mix", folder / "r.toml", "--set", f"data.sources=[{sources}]")
    with pytest.raises(UsageError, match="not both"):
        argosy("data", "mix", folder / "r.toml", "--set", f"data.source={folder}/a")
    with pytest.raises(InputError, match="less than one batch of 1000"):
        argosy("data", "mix", folder / "r.toml", "--set", "batch.tokens=32000")


def test_a_mixture_is_found_again_with_its_tokenizer(folder):
    recipe = load_recipe(folder / "r.toml")
    first, second = prepare(recipe), prepare(recipe)
    assert first.folder == second.folder
    assert (first.folder / "tokenizer.json").exists()
    opened = open_data(first.folder, recipe)
    assert opened.digest == first.digest
    assert [source.name for source in opened.sources] == ["a", "b"]
    whole = [part.held_out.read(0, part.held_out.tokens).tolist() for part in opened.sources]
    assert opened.held_out.read(0, opened.held_out.tokens).tolist() == whole[0] + whole[1]
    middle = len(whole[0])
    assert opened.held_out.read(middle - 3, middle + 4).tolist() == whole[0][-3:] + whole[1][:4]
