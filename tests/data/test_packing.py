"""Packing: every token is a target exactly once, and what stands in a row says where each document is."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import write_shards

from argosy.data.batch import NO_LOSS
from argosy.data.bins import Bins, best_fit, pack
from argosy.data.packing import BestFit, Split, document_masks


def rows_of(packing, length):
    """All samples: (inputs, targets, where documents begin, loss tokens, padding)."""
    for sample in range(packing.samples):
        inputs, targets = np.full(length, -1), np.full(length, -1)
        begins, loss, pad = packing.fill(sample, inputs, targets)
        assert loss == (targets != NO_LOSS).sum()
        yield inputs, targets, list(begins), loss, pad


def documents_of(lengths):
    """(first, last) token of each document of `write_shards`: tokens are their places from 1 on, 0 ends a document."""
    place = 0
    for length in lengths:
        yield place, place + length
        place += length + 1


def plain_best_fit(sizes, capacity):
    """Room left in each bin, sorted, as the rule is written in books."""
    room = []
    for size in sorted(sizes, reverse=True):
        fitting = [left for left in room if left >= size]
        if fitting:
            room.remove(min(fitting))
            room.append(min(fitting) - size)
        else:
            room.append(capacity - size)
    return sorted(room)


@settings(max_examples=100)
@given(st.data(), st.integers(1, 40))
def test_bins_are_those_of_best_fit_decreasing(data, capacity):
    sizes = data.draw(st.lists(st.integers(1, capacity), max_size=80))
    bin_of = best_fit(np.array(sizes, dtype=np.int64), capacity)
    filled = np.bincount(bin_of, weights=sizes).astype(int) if sizes else np.empty(0, int)
    assert sorted((capacity - filled).tolist()) == plain_best_fit(sizes, capacity)
    assert set(bin_of.tolist()) == set(range(len(filled)))


@settings(max_examples=100)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=30), st.integers(1, 20))
def test_pieces_cover_each_document_once(lengths, sequence_length):
    ends = np.cumsum(np.array(lengths) + 1)
    counts, starts, sizes = pack(ends, 0, sequence_length)
    assert counts.sum() == len(starts) == len(sizes)
    targets = sorted(t for start, size in zip(starts, sizes, strict=True) for t in range(start + 1, start + size + 1))
    assert targets == [t for first, last in documents_of(lengths) for t in range(first + 1, last + 1)]
    assert all(sizes[a:b].sum() <= sequence_length for a, b in pairwise(np.cumsum([0, *counts])))


@pytest.mark.parametrize("shard_tokens", [1 << 20, 50], ids=["one shard", "many"])
def test_best_fit_predicts_each_token_of_each_document_once(tmp_path, shard_tokens):
    length, lengths = 16, [1, 5, 16, 17, 33, 4, 9, 2, 48, 15, 7]
    shards = write_shards(tmp_path / "s", lengths, shard_tokens=shard_tokens)
    packing = BestFit(shards, length, Bins.of(shards, length, tmp_path, lambda line: None))
    predicted = []
    for inputs, targets, begins, loss, pad in rows_of(packing, length):
        assert begins[0] == 0
        filled = length - pad
        assert loss == filled
        if pad:
            assert begins[-1] == filled
            assert (inputs[filled:] == shards.end_of_text).all()
            assert (targets[filled:] == NO_LOSS).all()
        for start, stop in zip(begins, [*begins[1:], length], strict=True):
            if start < filled:
                assert (np.diff(inputs[start:stop]) == 1).all(), "tokens of one document in a row"
                assert targets[start] == inputs[start] + 1 or targets[start] == 0
        predicted += [(int(i), int(t)) for i, t in zip(inputs[:filled], targets[:filled], strict=True)]
    wanted = []
    for first, last in documents_of(lengths):  # token at place p is p + 1, the last of a document 0
        wanted += [(p + 1, p + 2 if p + 1 < last else 0) for p in range(first, last)]
    assert sorted(predicted) == sorted(wanted)


def test_documents_that_fit_exactly_leave_no_padding(tmp_path):
    length = 8
    shards = write_shards(tmp_path / "s", [8, 16, 4, 4, 24])
    packing = BestFit(shards, length, Bins.of(shards, length, tmp_path, lambda line: None))
    assert packing.samples == 1 + 2 + 1 + 3
    assert all(pad == 0 for *_, pad in rows_of(packing, length))


def test_bins_are_found_again_and_belong_to_one_stream(tmp_path):
    shards = write_shards(tmp_path / "s", [3, 9, 5])
    first = Bins.of(shards, 8, tmp_path, lambda line: None)
    folders = sorted(path.name for path in tmp_path.glob("bins-*"))
    second = Bins.of(shards, 8, tmp_path, lambda line: None)
    assert [first.pieces(n) for n in range(len(first))] == [second.pieces(n) for n in range(len(second))]
    assert sorted(path.name for path in tmp_path.glob("bins-*")) == folders
    Bins.of(write_shards(tmp_path / "other", [3, 9, 6]), 8, tmp_path, lambda line: None)
    assert len(list(tmp_path.glob("bins-*"))) == 2


@pytest.mark.parametrize("sequence_length", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("lengths", [[1, 1, 1, 1, 1], [7, 1, 3], [2, 9, 2, 4], [40]])
def test_masked_split_has_no_loss_across_documents(tmp_path, lengths, sequence_length):
    shards = write_shards(tmp_path / "s", lengths, shard_tokens=12)
    packing = Split(shards, sequence_length, masks=True)
    stream = shards.read(0, shards.tokens).tolist()
    first_tokens = {first for first, _ in documents_of(lengths)}
    assert packing.samples == (len(stream) - 1) // sequence_length
    for sample, (inputs, targets, begins, _, _) in enumerate(rows_of(packing, sequence_length)):
        for column in range(sequence_length):
            place = sample * sequence_length + column
            assert inputs[column] == stream[place]
            assert targets[column] == (NO_LOSS if place + 1 in first_tokens else stream[place + 1])
        inside = range(sample * sequence_length + 1, (sample + 1) * sequence_length)
        assert begins == [place - sample * sequence_length for place in inside if place in first_tokens]


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 11), unique=True, max_size=6).map(sorted), min_size=1, max_size=5))
def test_masks_count_documents_and_restart_positions(begins):
    segments, positions = document_masks(begins, 12)
    for row, starts in enumerate(begins):
        segment = place = 0
        for column in range(12):
            if column in starts and column:
                segment, place = segment + 1, 0
            assert (segments[row, column], positions[row, column]) == (segment, place)
            place += 1
