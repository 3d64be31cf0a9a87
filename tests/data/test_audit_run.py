"""A real run over 4, 3, 6 and 2 ranks in mid-epoch, audited from its journals and read from the model's input."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from texts import write_corpus
from typer.testing import CliRunner

from argosy.cli.main import build_app
from argosy.data.batch import Batch
from argosy.journal.reader import read_file
from argosy.ledger.worth import repeated_data, source_tokens
from argosy.registry.run_folder import RunFolder
from argosy.training.observers import Observer
from tiny_runs import SMALL, StopAfter, make_run, train

SAMPLES, LENGTH, BATCH = 50, 32, 12


class Inputs(Observer):
    """Notes what goes into the model: of each row the numbers that the documents' text holds."""

    def __init__(self, folder: Path):
        self.folder = folder

    def on_batch(self, step: int, batches: list[Batch]) -> None:
        import torch.distributed as dist

        rank = dist.get_rank() if dist.is_initialized() else 0
        rows = [row for batch in batches for row in batch.tokens.tolist()]
        (self.folder / f"{step}-{rank}.json").write_text(json.dumps(rows))


def audited(run: RunFolder) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(build_app(), ["data", "audit", str(run.path), "--json"])
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.dist
def test_four_worlds_use_each_sample_once(tmp_path: Path, run_ranks: Any) -> None:
    data = write_corpus(tmp_path, SAMPLES, LENGTH)
    seen = tmp_path / "seen"
    seen.mkdir()
    sets = (*SMALL, "tokenizer.kind=bytes", f"data.source={data}", "objective.tokens=4608", "checkpoint.every_steps=2")
    run = make_run(tmp_path / "run", *sets)
    for ranks, stop in ((4, 3), (3, 5), (6, 8), (2, 12)):
        (run.control / "stop").unlink(missing_ok=True)
        train(run_ranks, run, ranks, [StopAfter(run, stop), Inputs(seen)])
    code, found = audited(run)
    assert (code, found["clean"], found["faults"]) == (0, True, [])
    assert [(leg["world"], leg["first"], leg["stop"]) for leg in found["legs"]] == [
        (4, 0, 3),
        (3, 3, 5),
        (6, 5, 8),
        (2, 8, 12),
    ]
    assert found["confirmed"] == found["steps"] == 12
    assert found["sources"][0]["used"] == 12 * BATCH
    # the same, without any of the loader's words: first tokens of all rows that models were given
    rows: list[str] = []
    for step, ranks in enumerate([4] * 3 + [3] * 2 + [6] * 3 + [2] * 4):
        for rank in range(ranks):
            rows += [json.dumps(row) for row in json.loads((seen / f"{step}-{rank}.json").read_text())]
    first_epoch, second_epoch = rows[:SAMPLES], rows[SAMPLES : 2 * SAMPLES]
    assert len(set(first_epoch)) == len(set(second_epoch)) == SAMPLES
    assert set(first_epoch) == set(second_epoch)
    assert first_epoch != second_epoch

    # what the ledger makes of it: 144 samples drawn from 50, whose worth Muennighoff's equation 5 says
    files = [read_file(file) for attempt in run.attempts() for file in run.attempt_folder(attempt).glob("rank-*.jsonl")]
    sources = source_tokens([file for file in files if file is not None])
    drawn, unique, half_life = 12 * BATCH * LENGTH, SAMPLES * LENGTH, 15.387756
    assert [(one.tokens, one.first_seen) for one in sources] == [(drawn, unique)]
    worth = unique + unique * half_life * (1 - math.exp(-(drawn / unique - 1) / half_life))
    leak = repeated_data(sources, useful_ns=10**12)
    assert leak.account == "decision.repeated_data"
    assert leak.ns == pytest.approx(10**12 * (1 - worth / drawn), abs=1)
    assert "Muennighoff" in leak.why

    file = run.rank_file(2, 1)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    next(line for line in lines if "sum" in line)["sum"] = "0" * 16
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, found = audited(run)
    assert (code, found["clean"]) == (1, False)
    assert found["faults"] == ["attempt 2, steps 3 to 3: the ranks trained on other samples than the order says"]
