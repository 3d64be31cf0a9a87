"""A run may change its layout at every start: it learns the same, says the same, and its checkpoints fit."""

from pathlib import Path
from typing import Any

import pytest

from tiny_runs import SMALL, StopAfter, losses, make_run, records, train

MODEL = (
    "model.layers=4",
    "model.heads=4",
    "model.kv_heads=2",
    "model.tied_embeddings=true",
    "optimizer.kind=sgd",
    "optimizer.learning_rate=0.5",
    "eval.sample_prompt=def ",
    "eval.sample_tokens=12",
)
LAYOUTS = [
    (4, 2, ("layout.pp=2", "layout.tp=2", "layout.micro_batch_sequences=2")),
    (4, 4, ("layout.fsdp=2", "layout.tp=2", "layout.recompute=selective")),
    (2, 6, ("layout.pp=2", "layout.schedule=zbv", "layout.micro_batch_sequences=3")),
]
"""Ranks, step at which the attempt is stopped, layout."""


@pytest.mark.dist
def test_a_run_moves_through_layouts(tmp_path: Path, run_ranks: Any) -> None:
    alone = make_run(tmp_path / "alone", *SMALL, *MODEL)
    train(run_ranks, alone, 1)
    for attempt, (ranks, until, layout) in enumerate(LAYOUTS, start=1):
        run = make_run(tmp_path / "moved", *SMALL, *MODEL, *layout)
        train(run_ranks, run, ranks, [StopAfter(run, until)] if until < 6 else [])
        assert [record["s"] for record in records(run, attempt, "step")] == list(range(until - 2, until))
        (run.control / "stop").unlink(missing_ok=True)
    moved, straight = losses(run), losses(alone)
    assert moved.keys() == straight.keys()
    for step, loss in straight.items():
        assert moved[step] == pytest.approx(loss, rel=1e-5), step
    for kind, field in (("eval", "loss"), ("eval", "bpb"), ("eval", "tokens"), ("eval", "bytes")):
        assert records(run, 3, kind)[-1][field] == pytest.approx(records(alone, 1, kind)[-1][field], rel=1e-5)
    assert records(run, 3, "sample")[-1]["text"] == records(alone, 1, "sample")[-1]["text"]
