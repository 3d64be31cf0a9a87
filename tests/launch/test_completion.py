"""`--from`: what a recipe leaves open is that of the weights, and stays so when the command is given again."""

from pathlib import Path

import pytest

from argosy.data.tokenizer import Tokenizer
from argosy.errors import UsageError
from argosy.launch.completion import completed
from argosy.launch.opening import opened
from argosy.recipe.load import load_recipe
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder
from hf_folders import QWEN3, write_folder

BARE = "[objective]\ntokens = 100_000\n[data]\nsequence_length = 32\n"


@pytest.fixture
def parent(tmp_path: Path) -> RunFolder:
    """A run of another shape than the default's that looks as if steps 20 and 100 had been saved."""
    recipe = bare(tmp_path, "model.layers=3", "model.hidden_size=64", "tokenizer.kind=bytes")
    run = RunFolder.create(tmp_path / "parent", recipe)
    for step in (20, 100):
        (run.checkpoints / f"step-{step}").mkdir()
    return run


def bare(folder: Path, *sets: str) -> Recipe:
    """A recipe that says nothing of model and tokenizer but what `sets` do."""
    file = folder / "bare.toml"
    file.write_text(BARE)
    return load_recipe(file, sets)


def test_model_tokenizer_and_step_come_from_a_run(tmp_path: Path, parent: RunFolder) -> None:
    recipe = completed(bare(tmp_path, f"init.from={parent.path}"), tmp_path / "run")
    assert recipe.init.from_ == f"{parent.path}@100"
    assert (recipe.model.layers, recipe.model.hidden_size, recipe.tokenizer.kind) == (3, 64, "bytes")


def test_what_the_recipe_says_stands(tmp_path: Path, parent: RunFolder) -> None:
    sets = (f"init.from={parent.path}@20", "model.rope_theta=500000")
    recipe = completed(bare(tmp_path, *sets), tmp_path / "run")
    assert recipe.init.from_ == f"{parent.path}@20"
    assert (recipe.model.layers, recipe.model.rope_theta) == (3, 500_000)
    with pytest.raises(UsageError, match="layers is 3 there, 7 here"):
        completed(bare(tmp_path, *sets, "model.layers=7"), tmp_path / "run")


def test_a_model_that_cannot_be_mixed_with_that_of_the_weights_says_what_to_leave_out(
    tmp_path: Path, parent: RunFolder
) -> None:
    sets = (f"init.from={parent.path}", "model.hidden_size=96", "model.heads=6")
    with pytest.raises(UsageError, match=r"heads 6 is not divisible by kv_heads 4.*leave both tables out"):
        completed(bare(tmp_path, *sets), tmp_path / "run")


def test_model_and_tokenizer_come_from_a_folder_of_hugging_face(tmp_path: Path) -> None:
    write_folder(tmp_path / "hf")
    recipe = completed(bare(tmp_path, f"init.from={tmp_path / 'hf'}"), tmp_path / "run")
    assert recipe.model.model_dump(include=set(QWEN3)) == QWEN3
    assert recipe.tokenizer.path == str(tmp_path / "hf" / "tokenizer.json")


def test_positions_of_the_weights_bound_the_sequence(tmp_path: Path) -> None:
    write_folder(tmp_path / "hf")
    with pytest.raises(UsageError, match=r"sequence_length 128 is above model.max_positions 64"):
        completed(bare(tmp_path, f"init.from={tmp_path / 'hf'}", "data.sequence_length=128"), tmp_path / "run")


def test_tokenizer_of_data_that_is_built(tmp_path: Path, parent: RunFolder) -> None:
    from argosy.data.build import Options, TokenizerSpec, build_data_set
    from argosy.data.textfiles import TextFiles

    (tmp_path / "text").mkdir()
    for n in range(8):
        (tmp_path / "text" / f"{n}.txt").write_text(f"text {n}")
    Tokenizer.bytes().save(tmp_path / "tokenizer.json")
    spec = TokenizerSpec("file", path=tmp_path / "tokenizer.json")
    build_data_set(
        TextFiles(tmp_path / "text"), tmp_path / "data", spec, Options(held_out_share=0.3), say=lambda line: None
    )
    sets = (f"init.from={parent.path}", f"data.source={tmp_path / 'data'}")
    recipe = completed(bare(tmp_path, *sets), tmp_path / "run")
    assert (recipe.tokenizer.kind, recipe.tokenizer.path) == ("file", str(tmp_path / "data" / "tokenizer.json"))


def test_the_same_command_continues_whatever_became_of_the_parent(tmp_path: Path, parent: RunFolder) -> None:
    command = bare(tmp_path, f"init.from={parent.path}")
    with opened(tmp_path / "run", first := completed(command, tmp_path / "run")) as (run, _):
        assert run.info.parent == f"{parent.info.id}@100"
    (parent.checkpoints / "step-200").mkdir()
    assert completed(command, tmp_path / "run") == first, "the newest step was chosen once"
    parent.path.rename(tmp_path / "gone")
    with opened(tmp_path / "run", completed(command, tmp_path / "run")) as (run, _):
        assert run.recipe() == first
    other = bare(tmp_path, f"init.from={tmp_path / 'gone'}@20")
    with (
        pytest.raises(UsageError, match=r"learns something else: init.from"),
        opened(tmp_path / "run", completed(other, tmp_path / "run")),
    ):
        pass


def test_a_run_cannot_start_from_itself(parent: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot start from itself"):
        completed(bare(tmp_path, f"init.from={parent.path}"), parent.path)


def test_without_from_nothing_changes(tmp_path: Path) -> None:
    recipe = bare(tmp_path)
    assert completed(recipe, tmp_path / "run") is recipe
    with opened(tmp_path / "run", recipe) as (run, _):
        assert run.info.parent is None
