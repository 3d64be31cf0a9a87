import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import write_shards

from argosy.data.batch import NO_LOSS
from argosy.data.windows import EvaluationWindows


@pytest.fixture(scope="module")
def shards_of(tmp_path_factory):
    made = {}

    def of(tokens):
        if tokens not in made:
            folder = tmp_path_factory.mktemp("windows")
            made[tokens] = write_shards(folder / "s", [tokens - 1], vocab_size=1000)
        return made[tokens]

    return of


@given(
    tokens=st.integers(1, 70),
    length=st.integers(1, 12),
    stride_share=st.floats(0.01, 1),
    rows=st.integers(1, 5),
    ranks=st.integers(1, 5),
)
@settings(max_examples=150)
def test_every_token_is_predicted_once_from_what_stands_before_it(shards_of, tokens, length, stride_share, rows, ranks):
    shards = shards_of(tokens)
    stream = shards.read(0, tokens).tolist()
    windows = EvaluationWindows(shards, length, stride_share=stride_share)
    per_rank = [list(windows.batches(rows, rank, ranks)) for rank in range(ranks)]
    assert len({len(batches) for batches in per_rank}) == 1
    predicted = []
    for batch in (batch for batches in per_rank for batch in batches):
        assert batch.tokens.shape == batch.targets.shape == (rows, length)
        assert batch.loss_tokens == int((batch.targets != NO_LOSS).sum())
        assert batch.loss_tokens + batch.context_tokens + batch.pad_tokens == rows * length
        for window, inputs, targets in zip(batch.sample_ids.tolist(), batch.tokens, batch.targets, strict=True):
            for place in torch.nonzero(targets != NO_LOSS).flatten().tolist():
                position = window * windows.new + place
                assert targets[place] == stream[position]
                seen = [0, *stream][window * windows.new : position + 1]
                assert inputs[: place + 1].tolist() == seen
                assert position < length or place >= length - windows.new
                predicted.append(position)
            if window < 0:
                assert (targets == NO_LOSS).all()
    assert sorted(predicted) == list(range(tokens))
    assert windows.full


def test_bytes_of_all_windows_are_the_bytes_of_the_text(shards_of):
    shards = shards_of(50)
    token_bytes = np.arange(1000)
    windows = EvaluationWindows(shards, 8, stride_share=0.5, token_bytes=token_bytes)
    assert sum(batch.text_bytes for batch in windows.batches(3)) == shards.read(0, 50).sum()


def test_a_limit_takes_windows_from_the_whole_text(shards_of):
    windows = EvaluationWindows(shards_of(70), 5, tokens=20)
    ids = torch.cat([batch.sample_ids for batch in windows.batches(2)])
    assert ids.tolist() == [0, 3, 7, 10]
    assert sum(batch.loss_tokens for batch in windows.batches(2)) == 20
    assert not windows.full


def test_a_limit_beyond_the_text_is_a_full_evaluation(shards_of):
    windows = EvaluationWindows(shards_of(70), 5, tokens=1000)
    assert windows.full
    assert len(windows) == 14


def test_the_smallest_limit_still_evaluates(shards_of):
    assert len(EvaluationWindows(shards_of(70), 5, tokens=1)) == 1
