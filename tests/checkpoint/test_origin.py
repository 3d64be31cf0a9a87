"""What a name stands for, and what may be loaded from it."""

from pathlib import Path
from typing import Any

import pytest

from argosy.checkpoint.imports import import_folder
from argosy.checkpoint.origin import check_load, find_origin, split_step
from argosy.errors import InputError, UsageError
from argosy.recipe.load import load_recipe
from argosy.registry.run_folder import RunFolder
from hf_folders import change_config, write_folder
from tiny_runs import RECIPE, SMALL


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that looks as if steps 20 and 100 had been saved."""
    run = RunFolder.create(tmp_path / "run", load_recipe(RECIPE, SMALL))
    for step in (20, 100):
        (run.checkpoints / f"step-{step}").mkdir()
        (run.checkpoints / f"step-{step}" / "manifest.json").touch()
    return run


def test_a_run_means_its_newest_step_and_is_pinned(run: RunFolder) -> None:
    origin = find_origin(str(run.path))
    assert (origin.kind, origin.step, origin.name) == ("run", 100, f"{run.path}@100")
    assert origin.parent == f"{run.info.id}@100"
    assert origin.folder == run.checkpoints / "step-100"
    assert find_origin(f"{run.path}@20").step == 20
    assert find_origin(str(run.checkpoints / "step-20")) == find_origin(f"{run.path}@20")


def test_a_path_with_an_at_sign_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "mail@7").mkdir()
    assert split_step(str(tmp_path / "mail@7")) == (tmp_path / "mail@7", None)
    assert split_step(str(tmp_path / "mail@8")) == (tmp_path / "mail", 8)


def test_folders_of_models(tmp_path: Path) -> None:
    write_folder(tmp_path / "hf")
    import_folder(tmp_path / "hf", tmp_path / "in")
    theirs, ours = find_origin(str(tmp_path / "hf")), find_origin(str(tmp_path / "in"))
    assert (theirs.kind, ours.kind) == ("hugging face", "imported")
    assert theirs.model == ours.model
    assert find_origin(str(tmp_path / "in" / "checkpoints" / "step-0")) == ours
    assert theirs.tokenizer is not None
    assert theirs.tokenizer.path == str(tmp_path / "hf" / "tokenizer.json")


def test_what_is_nothing_to_start_from(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    fresh = RunFolder.create(tmp_path / "fresh", load_recipe(RECIPE, SMALL))
    write_folder(tmp_path / "hf")
    change_config(tmp_path / "hf", architectures=["FalconForCausalLM"])
    for name, said in {
        str(tmp_path / "nowhere"): "no such folder",
        str(tmp_path / "empty"): "nothing to start from",
        str(fresh.path): "no checkpoint yet",
        f"{run.path}@50": "no checkpoint of step 50; there are: 100, 20",
        f"{tmp_path / 'empty'}@3": "is no run",
        str(tmp_path / "hf"): "unknown architecture FalconForCausalLM; known are LlamaForCausalLM",
    }.items():
        with pytest.raises(InputError, match=said):
            find_origin(name)


@pytest.mark.parametrize(
    ("load", "sets", "reason"),
    [
        ("weights", ("model.layers=3",), "layers is 2 there, 3 here"),
        ("weights", ("tokenizer.kind='bpe'",), "vocab_size is 257 there, 4096 here"),
        ("weights+optimizer", ("optimizer.kind='sgd'",), "state of adamw means nothing to sgd"),
        ("all", ("run.seed=1",), "other samples: run.seed was 0, is 1"),
        ("all", ("batch.tokens=768",), "batch.tokens was 384, is 768"),
        ("all", ("data.sequence_length=64",), "data.sequence_length was 32, is 64"),
        ("all", (), "step 100 is at or beyond the horizon of 6 steps"),
    ],
)
def test_odd_combinations_are_refused(run: RunFolder, load: str, sets: tuple[str, ...], reason: str) -> None:
    recipe = load_recipe(RECIPE, (*SMALL, f"init.from={run.path}", f"init.load={load}", *sets))
    with pytest.raises(UsageError, match=reason):
        check_load(recipe, find_origin(str(run.path)))


@pytest.mark.parametrize("load", ["weights+optimizer", "all"])
def test_folders_hold_only_weights(tmp_path: Path, load: str) -> None:
    parameters: dict[str, Any] = write_folder(tmp_path / "hf")
    assert parameters
    sets = (*SMALL, "model.max_positions=64", f"init.from={tmp_path / 'hf'}", f"init.load={load}")
    sets = (*sets, "model.tied_embeddings=false")
    with pytest.raises(UsageError, match="holds weights and nothing else"):
        check_load(load_recipe(RECIPE, sets), find_origin(str(tmp_path / "hf")))


def test_what_may_differ(run: RunFolder) -> None:
    """Another learning rate, more context for rotary positions, another horizon: that is what a fork is for."""
    sets = ("optimizer.learning_rate=1e-4", "model.rope_theta=1e6", "model.max_positions=999", "objective.tokens=76800")
    for load in ("weights", "weights+optimizer", "all"):
        recipe = load_recipe(RECIPE, (*SMALL, f"init.from={run.path}", f"init.load={load}", *sets))
        check_load(recipe, find_origin(str(run.path)))


def test_load_without_from() -> None:
    with pytest.raises(UsageError, match="needs `from`"):
        load_recipe(RECIPE, ("init.load=all",))
