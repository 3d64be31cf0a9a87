import json

import pytest
from texts import Texts

from argosy.data import stdlib
from argosy.data.build import Options, TokenizerSpec, build_data_set
from argosy.data.prepare import open_data, prepare
from argosy.data.stdlib import StandardLibrary
from argosy.data.windows import EvaluationWindows
from argosy.errors import InputError, UsageError
from argosy.recipe.schema import Recipe

TEXTS = Texts(tuple(f"text {number} " * (1 + number % 9) for number in range(200)))


def recipe(**tables):
    return Recipe.model_validate({"objective": {"tokens": 1000}} | tables)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("prepare") / "out"
    build_data_set(TEXTS, out, TokenizerSpec("bpe", 300), Options(held_out_share=0.1), say=lambda line: None)
    return out


def of_folder(folder, data=None, tokenizer=None, **rest):
    data = {"source": str(folder)} | (data or {})
    return recipe(data=data, tokenizer=tokenizer or {"kind": "bpe", "vocab_size": 300}, **rest)


@pytest.fixture
def small_library(tmp_path, monkeypatch):
    """A standard library of a few files, so that a test builds it in no time."""
    monkeypatch.setattr(stdlib, "FEWEST_BYTES", 1)
    root = tmp_path / "lib"
    root.mkdir()
    for number in range(60):
        (root / f"module_{number}.py").write_text(f"def f_{number}(x):\n    return x + {number}\n" * 5)
    monkeypatch.setattr(StandardLibrary, "of_this_python", classmethod(lambda cls: cls(root)))
    return root


def test_the_standard_library_is_built_once_and_found_again(tmp_path, small_library):
    cache = str(tmp_path / "cache")
    wanted = recipe(data={"cache": cache}, tokenizer={"vocab_size": 300})
    lines = []
    first = prepare(wanted, lines.append)
    assert any(first.source_digest in line for line in lines)
    again_lines = []
    again = prepare(wanted, again_lines.append)
    assert again_lines == []
    assert again.digest == first.digest
    assert again.folder == first.folder
    others = [
        recipe(data={"cache": cache}, tokenizer={"vocab_size": 310}),
        recipe(data={"cache": cache}, tokenizer={"kind": "bytes"}),
        recipe(data={"cache": cache, "held_out_share": 0.2}, tokenizer={"vocab_size": 300}),
    ]
    assert len({prepare(other).folder for other in [wanted, *others]}) == 4
    (small_library / "module_7.py").write_text("changed = True\n")
    assert prepare(wanted).digest != first.digest


def test_a_tokenizer_file_serves_the_standard_library(tmp_path, small_library, folder):
    data, path = {"cache": str(tmp_path / "cache")}, str(folder / "tokenizer.json")
    prepared = prepare(recipe(data=data, tokenizer={"kind": "file", "path": path}))
    assert prepared.vocab_size == prepared.tokenizer.vocab_size
    assert prepared.tokenizer.digest == prepare(of_folder(folder)).tokenizer.digest


def test_a_built_folder_is_ready_to_train_on(folder):
    prepared = prepare(of_folder(folder))
    assert prepared.vocab_size == 300
    assert prepared.held_out_bytes == prepared.held_out.text_bytes
    assert 0 < prepared.gzip_bits_per_byte < 8
    assert open_data(folder, of_folder(folder)).digest == prepared.digest
    assert prepare(of_folder(folder, data={"digest": prepared.digest})).digest == prepared.digest
    assert prepare(of_folder(folder, model={"vocab_size": 512})).vocab_size == 512


def test_bits_per_byte_have_their_exact_bytes(folder):
    prepared = prepare(of_folder(folder))
    windows = EvaluationWindows(prepared.held_out, 16, stride_share=0.5, token_bytes=prepared.tokenizer.token_bytes)
    assert sum(batch.text_bytes for batch in windows.batches(4)) == prepared.held_out_bytes


@pytest.mark.parametrize(
    ("tokenizer", "remedy"),
    [
        ({"kind": "bytes"}, "tokenizer.kind = 'bpe' and tokenizer.vocab_size = 300"),
        ({"kind": "bpe", "vocab_size": 4096}, "tokenizer.vocab_size = 300"),
    ],
)
def test_another_tokenizer_than_the_data_was_built_with_is_refused(folder, tokenizer, remedy):
    with pytest.raises(UsageError, match=remedy):
        prepare(of_folder(folder, tokenizer=tokenizer))


def test_bad_folders_are_one_line(folder, tmp_path):
    with pytest.raises(InputError, match=r"no such data folder.*argosy data build"):
        prepare(of_folder(tmp_path / "missing"))
    with pytest.raises(InputError, match="no manifest here"):
        prepare(of_folder(tmp_path))
    with pytest.raises(InputError, match=r"wrong digest .* the recipe asks for 0123"):
        prepare(of_folder(folder, data={"digest": "0123"}))


def test_a_model_without_rows_for_the_tokens_is_refused(folder, tmp_path):
    path = folder / "tokenizer.json"
    build_data_set(
        TEXTS, tmp_path / "out", TokenizerSpec("file", path=path), Options(held_out_share=0.1), say=lambda line: None
    )
    with pytest.raises(InputError, match=r"beyond the model's vocabulary of 100.*model\.vocab_size"):
        prepare(of_folder(tmp_path / "out", tokenizer={"kind": "file", "path": str(path)}, model={"vocab_size": 100}))


def test_a_flipped_byte_is_found_before_training(tmp_path):
    out = tmp_path / "out"
    build_data_set(TEXTS, out, TokenizerSpec("bytes"), Options(held_out_share=0.1), say=lambda line: None)
    wanted = of_folder(out, tokenizer={"kind": "bytes"})
    path = out / "train" / "tokens-00000.bin"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"train/tokens-00000\.bin: wrong digest"):
        prepare(wanted)


def test_parts_of_different_data_sets_are_noticed(tmp_path):
    for name, texts in (("a", TEXTS.texts), ("b", TEXTS.texts[:100])):
        build_data_set(
            Texts(texts), tmp_path / name, TokenizerSpec("bytes"), Options(held_out_share=0.1), say=lambda line: None
        )
    (tmp_path / "a" / "held_out").rename(tmp_path / "old")
    (tmp_path / "b" / "held_out").rename(tmp_path / "a" / "held_out")
    with pytest.raises(InputError, match="parts of different data sets"):
        prepare(of_folder(tmp_path / "a", tokenizer={"kind": "bytes"}))


def test_a_damaged_manifest_of_the_cache_is_an_error_not_a_rebuild(tmp_path, small_library):
    wanted = recipe(data={"cache": str(tmp_path / "cache")}, tokenizer={"kind": "bytes"})
    path = prepare(wanted).folder / "dataset.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"schema": "argosy.dataset/9"}))
    with pytest.raises(InputError, match=r"argosy\.dataset/9.*build the folder again"):
        prepare(wanted)
