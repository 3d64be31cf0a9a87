"""The text that a run writes at its end."""

from pathlib import Path
from typing import Any

import pytest

from argosy.training.sample import open_speaker
from tiny_runs import SMALL, make_run, records, train

ASK = ("eval.sample_prompt='import '", "eval.sample_tokens=12")


@pytest.mark.dist
def test_sharded_ranks_write_what_one_process_writes_from_the_checkpoint(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, *ASK)
    assert train(run_ranks, run, 2) == [0, 0]
    (sample,) = records(run, 1, "sample")
    assert records(run, 1, "sample", rank=1) == []
    speaker = open_speaker(run.path)
    text = speaker.continue_text("import ", 12, temperature=0.8, top_k=50, seed=0)
    assert (sample["s"], sample["prompt"], sample["text"]) == (speaker.step, "import ", text)


@pytest.mark.dist
def test_nothing_is_written_unasked(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL)
    assert train(run_ranks, run, 1) == [0]
    assert records(run, 1, "sample") == []
