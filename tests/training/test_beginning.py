"""What a run begins with: weights of any origin on any layout, moments, or everything."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from argosy.checkpoint.imports import import_folder
from argosy.data.build import Options, TokenizerSpec, build_data_set
from argosy.data.textfiles import TextFiles
from argosy.errors import ArgosyError, Exit
from argosy.registry.run_folder import RunFolder
from hf_folders import QWEN3, write_folder
from tiny_runs import SMALL, digests, losses, make_run, records, tensors_in, train

pytestmark = pytest.mark.dist

STILL = ("optimizer.learning_rate=1e-30", "optimizer.weight_decay=0", "objective.tokens=384")
"""One step that changes no weight."""
MODEL = tuple(f"model.{key}={str(value).lower()}" for key, value in (QWEN3 | {"tied_embeddings": False}).items())


def weights(run: RunFolder, step: int) -> dict[str, torch.Tensor]:
    tensors = tensors_in(run.checkpoints / f"step-{step}")
    return {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}


def moments(run: RunFolder, step: int) -> dict[str, torch.Tensor]:
    tensors = tensors_in(run.checkpoints / f"step-{step}")
    return {name: tensor for name, tensor in tensors.items() if name.startswith("optimizer.")}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Three of six steps, on one rank."""
    from ranks import run_ranks

    run = make_run(
        tmp_path_factory.mktemp("parent") / "run", *SMALL, "checkpoint.every_steps=3", "checkpoint.keep_last=9"
    )
    assert train(run_ranks, run, 1) == [Exit.DONE]
    return run


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["hugging face", "imported"])
def test_weights_of_a_folder_on_one_rank_and_sharded(tmp_path: Path, run_ranks: Any, kind: str, ranks: int) -> None:
    expected = write_folder(tmp_path / "hf")
    source = tmp_path / "hf"
    if kind == "imported":
        source = import_folder(source, tmp_path / "in").folder
    run = make_run(tmp_path / "run", *SMALL, *MODEL, *STILL, f"init.from={source}")
    assert train(run_ranks, run, ranks) == [Exit.DONE] * ranks
    found = weights(run, 1)
    assert found.keys() == expected.keys()
    assert all(found[name].equal(tensor) for name, tensor in expected.items())


def test_all_goes_on_as_the_parent_does(tmp_path: Path, run_ranks: Any, parent: RunFolder) -> None:
    fork = make_run(tmp_path / "fork", *SMALL, f"init.from={parent.path}@3", "init.load=all")
    assert train(run_ranks, fork, 1) == [Exit.DONE]
    assert digests(fork, 6) == digests(parent, 6)
    assert losses(fork) == {step: loss for step, loss in losses(parent).items() if step >= 3}


@pytest.mark.parametrize(("load", "counted"), [("weights", 1.0), ("weights+optimizer", 4.0)])
def test_weights_with_and_without_moments(
    tmp_path: Path, run_ranks: Any, parent: RunFolder, load: str, counted: float
) -> None:
    fork = make_run(tmp_path / "fork", *SMALL, *STILL, f"init.from={parent.path}@3", f"init.load={load}")
    assert train(run_ranks, fork, 2) == [Exit.DONE] * 2
    before, after = weights(parent, 3), weights(fork, 1)
    assert before.keys() == after.keys()
    assert all(tensor.equal(after[name]) for name, tensor in before.items())
    assert {float(t) for name, t in moments(fork, 1).items() if name.endswith(".step")} == {counted}
    assert [record["s"] for record in records(fork, 1, "step")] == [0], "its own steps and data begin at 0"


def refusal(run_ranks: Any, tmp_path: Path, *sets: str) -> str:
    run = make_run(tmp_path / "refused", *SMALL, *sets)
    with pytest.raises(ArgosyError) as caught:
        train(run_ranks, run, 1)
    return str(caught.value)


def other_data(folder: Path, spec: TokenizerSpec) -> Path:
    lines = folder.with_suffix(".jsonl")
    lines.write_text("".join(json.dumps({"text": f"number {n} of the text" * 20}) + "\n" for n in range(40)))
    build_data_set(TextFiles(lines), folder, spec, Options(held_out_share=0.2), say=lambda line: None)
    return folder


def test_position_in_other_data_is_refused(tmp_path: Path, run_ranks: Any, parent: RunFolder) -> None:
    data = other_data(tmp_path / "data", TokenizerSpec("bytes"))
    sets = (f"init.from={parent.path}@3", f"data.source={data}")
    assert "stands at a position in data of digest" in refusal(run_ranks, tmp_path, *sets, "init.load=all")


def test_other_tokens_are_refused(tmp_path: Path, run_ranks: Any, parent: RunFolder) -> None:
    data = other_data(tmp_path / "data", TokenizerSpec("bpe", 257))
    sets = (f"init.from={parent.path}@3", f"data.source={data}", "tokenizer.kind=bpe", "tokenizer.vocab_size=257")
    said = refusal(run_ranks, tmp_path, *sets)
    assert "made of other tokens" in said
    assert f"--tokenizer {parent.path}@3" in said


def test_damaged_origin_is_refused(tmp_path: Path, run_ranks: Any) -> None:
    write_folder(tmp_path / "hf")
    source = import_folder(tmp_path / "hf", tmp_path / "in").folder
    file = next((source / "checkpoints" / "step-0").glob("*.distcp"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert "is damaged: __0_0.distcp (model." in refusal(run_ranks, tmp_path, *MODEL, f"init.from={source}")
