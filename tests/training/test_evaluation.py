"""Evaluation and data order are those of one plain process, for any number of ranks."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from argosy.data.batch import Batch
from argosy.data.build import Options, TokenizerSpec, build_data_set
from argosy.data.corpus import Document
from argosy.data.prepare import open_data
from argosy.models.build import build
from argosy.registry.run_folder import RunFolder
from argosy.training.observers import Observer
from tiny_runs import SMALL, make_run, records, tensors_in, train

LENGTH, NEW = 32, 20


class NoteSamples(Observer):
    """Writes which samples this rank trained on."""

    def __init__(self, folder: Path):
        self.folder = folder

    def on_batch(self, step: int, batches: Sequence[Batch]) -> None:
        rank = dist.get_rank() if dist.is_initialized() else 0
        ids = [sample for batch in batches for sample in batch.sample_ids.tolist()]
        with (self.folder / f"samples-{rank}").open("a") as file:
            file.write(json.dumps(ids) + "\n")


class Words:
    """Forty documents of about a hundred bytes, some of them not ASCII."""

    name = "words"

    def __iter__(self) -> Iterator[Document]:
        for number in range(40):
            text = " ".join(f"wörd{(number * number + k) % 23}" for k in range(12))
            yield Document(f"{number}", text, f"{number}".encode())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "words"
    build_data_set(Words(), folder, TokenizerSpec("bytes"), Options(held_out_share=0.3), say=lambda line: None)
    return folder


def plain_evaluation(run: RunFolder, step: int) -> tuple[float, float, int, int]:
    """Loss and bits per byte by a loop over single tokens' windows in float64: tokens, then bytes, are counted too."""
    recipe = run.recipe()
    data = open_data(Path(recipe.data.source), recipe)
    model = build(recipe.model, data.vocab_size, torch.float64, device="cpu").double()
    saved = tensors_in(run.checkpoints / f"step-{step}")
    model.load_state_dict({name.removeprefix("model."): t for name, t in saved.items() if name.startswith("model.")})
    held_out = data.held_out
    stream = [held_out.end_of_text, *held_out.read(0, held_out.tokens).tolist()]
    nats, predicted, text_bytes = 0.0, 0, 0
    start = 0
    while predicted < held_out.tokens:
        window = torch.tensor(stream[start : start + LENGTH + 1])
        with torch.no_grad():
            losses = F.cross_entropy(model(window[None, :-1])[0].double(), window[1:], reduction="none")
        fresh = slice(predicted - start, None)
        nats += float(losses[fresh].sum())
        text_bytes += sum(token < 256 for token in window[1:][fresh].tolist())
        predicted = start + len(window) - 1
        start += NEW
    return nats / predicted, nats / math.log(2) / text_bytes, predicted, text_bytes


@pytest.mark.dist
def test_evaluation_and_data_order_do_not_depend_on_the_ranks(tmp_path: Path, run_ranks: Any, corpus: Path) -> None:
    sets = (*SMALL, f"data.source={corpus}", f"eval.stride_share={NEW / LENGTH}", "eval.tokens=", "eval.final_tokens=")
    samples = {}
    for ranks in (1, 2, 3):
        run = make_run(tmp_path / f"run-{ranks}", *sets)
        train(run_ranks, run, ranks, [NoteSamples(run.path)])
        found = records(run, 1, "eval")[-1]
        loss, bits_per_byte, tokens, text_bytes = plain_evaluation(run, 6)
        assert (found["tokens"], found["bytes"], found["full"]) == (tokens, text_bytes, True)
        assert found["loss"] == pytest.approx(loss, rel=1e-6)
        assert found["bpb"] == pytest.approx(bits_per_byte, rel=1e-6)
        by_rank = [(run.path / f"samples-{rank}").read_text().splitlines() for rank in range(ranks)]
        samples[ranks] = [
            [sample for line in step for sample in json.loads(line)] for step in zip(*by_rank, strict=True)
        ]
    assert samples[1] == samples[2] == samples[3], "the global batch is the ranks' shares one after the other"
    assert [len(step) for step in samples[1]] == [12] * 6
