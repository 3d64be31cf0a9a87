"""The stream that reaches the model, read back from the tokens: `write_shards` writes each one's place into it."""

import numpy as np
import pytest
import torch
from texts import mixed_loader, split_loader, write_shards

from argosy.data.batch import NO_LOSS
from argosy.data.position import Position
from argosy.data.prefetch import Prefetch

S, B = 8, 30


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("loader") / "s", [37] * 40, shard_tokens=200)


def window(step, batch=B):
    return ((step * batch, batch),)


@pytest.mark.parametrize("data_ranks", [1, 2, 3, 5])
def test_the_global_stream_does_not_depend_on_ranks_or_micro_batches(shards, data_ranks):
    loader = split_loader(shards, S, seed=1)
    stream = torch.from_numpy(shards.read(0, shards.tokens))
    steps = 2 * loader.packings[0].samples // B + 2
    for step in range(steps):  # over two epoch boundaries
        whole = loader.batch(window(step))
        share = B // data_ranks
        parts = [
            split_loader(shards, S, seed=1).batch(window(step), rank, data_ranks, slice(start, start + 4))
            for rank in range(data_ranks)
            for start in range(0, share, 4)
        ]
        for field in ("tokens", "targets", "sample_ids"):
            together = torch.cat([getattr(part, field) for part in parts])
            assert torch.equal(together, getattr(whole, field))
        assert sum(part.loss_tokens for part in parts) == whole.loss_tokens == B * S
        starts = whole.sample_ids * S
        assert torch.equal(whole.tokens, stream[starts[:, None] + torch.arange(S)])
        assert torch.equal(whole.targets, stream[starts[:, None] + torch.arange(1, S + 1)])


def test_one_epoch_predicts_every_token_of_every_whole_sample_once(shards):
    loader = split_loader(shards, S)
    samples = loader.packings[0].samples
    seen = torch.cat([loader.batch(window(step, 1)).sample_ids for step in range(samples)])
    assert sorted(seen.tolist()) == list(range((shards.tokens - 1) // S))


def test_the_last_exactly_fitting_sample_is_kept(tmp_path):
    shards = write_shards(tmp_path / "s", [3 * S])  # with its end-of-text 3 S + 1 tokens
    loader = split_loader(shards, S)
    assert loader.packings[0].samples == 3
    assert 0 in loader.batch(window(0, 3)).targets
    shorter = write_shards(tmp_path / "shorter", [3 * S - 1])
    assert split_loader(shorter, S).packings[0].samples == 2


def test_a_batch_is_ready_for_the_model(shards):
    batch = split_loader(shards, S, seed=1).batch(window(0), 1, 2)
    assert batch.tokens.shape == batch.targets.shape == (B // 2, S)
    assert batch.tokens.dtype == batch.targets.dtype == batch.sample_ids.dtype == torch.int64
    assert batch.tokens.is_contiguous()
    assert batch.targets.is_contiguous()
    assert (batch.context_tokens, batch.pad_tokens) == (0, 0)
    assert batch.documents is None


def test_masks_come_with_the_batch(shards):
    batch = split_loader(shards, S, masks=True).batch(window(0))
    segments, positions = batch.documents
    assert segments.shape == positions.shape == (B, S)
    begins = (positions == 0) & (torch.arange(S) > 0)
    assert torch.equal(begins, batch.tokens % 38 == 1), "documents of 38 tokens begin at places 0, 38, 76 …"
    assert begins.any()
    assert torch.equal(segments, begins.cumsum(1))
    ends = batch.tokens == 0
    assert (batch.targets[ends] == NO_LOSS).all()
    assert batch.loss_tokens == int((batch.targets != NO_LOSS).sum()) == B * S - int(ends.sum())
    assert batch.context_tokens == int(ends.sum())


def test_seed_changes_the_order(shards):
    first, second = (split_loader(shards, S, seed).batch(window(0)).sample_ids for seed in (0, 1))
    assert not torch.equal(first, second)


def ids_of(batch):
    """(source, sample) of each row, from its tokens: sources of `mixed_loader` have tokens of their own."""
    first = batch.tokens[:, 0].tolist()
    return [(token // 10_000, (token % 10_000 - 1) // S) for token in first]


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    return lambda: mixed_loader(folder, {"a": 20, "b": 55, "c": 11}, (0.3, 0.6, 0.1), S)


@pytest.mark.parametrize("data_ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("depth", [0, 3])
def test_a_mixture_is_one_stream_for_any_ranks_and_prefetch(mixture, data_ranks, depth):
    steps = 6
    whole = [ids_of(mixture().batch(window(step))) for step in range(steps)]
    streams = []
    for rank in range(data_ranks):
        loader, position = mixture(), Position()

        def read(part, loader=loader, rank=rank):
            return [
                loader.batch(part, rank, data_ranks, slice(start, start + 2)) for start in range(0, B // data_ranks, 2)
            ]

        with Prefetch(read, B, depth) as prefetch:
            stream = []
            for _ in range(steps):
                batches, position = prefetch.get(position)
                stream.append([one for batch in batches for one in ids_of(batch)])
        streams.append(stream)
    assert [[one for stream in streams for one in stream[step]] for step in range(steps)] == whole


def test_saved_at_every_step_around_an_epoch_boundary_and_resumed_twice(mixture):
    """Whatever is stored is JSON; what comes after it is what would have come."""
    batch = 6
    undisturbed, position = [], Position()
    for _ in range(40):
        part, position = position.take(batch)
        undisturbed.append(ids_of(mixture().batch(part)))
    for save in range(8, 18):  # source c ends its first epoch at about index 110
        position = Position(save * batch)
        for again in range(2):
            stored = position.to_dict()
            position, loader = Position.from_dict(stored), mixture()
            for step in range(3):
                part, position = position.take(batch)
                assert ids_of(loader.batch(part)) == undisturbed[save + 3 * again + step]


def test_another_batch_and_another_world_in_mid_epoch_use_each_sample_once(mixture):
    loader, position, used = mixture(), Position(), []
    for ranks, batch, steps in ((4, 12, 3), (3, 12, 4), (6, 24, 3), (2, 10, 9)):
        for _ in range(steps):
            part, position = position.take(batch)
            for rank in range(ranks):
                used += ids_of(loader.batch(part, rank, ranks))
    expected = [one for index in range(0, position.index, 2) for one in ids_of(mixture().batch(((index, 2),)))]
    assert used == expected
    for source, count in enumerate((20, 55, 11)):
        ids = [sample for number, sample in used if number == source]
        for epoch in range(len(ids) // count):
            assert sorted(ids[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_skipped_samples_are_used_by_nobody(mixture):
    loader, position = mixture(), Position().skip(7, 5)
    part, position = position.take(10)
    assert part == ((0, 7), (12, 3))
    whole = ids_of(mixture().batch(((0, 15),)))
    assert ids_of(loader.batch(part)) == whole[:7] + whole[12:]
    halves = [ids_of(loader.batch(part, rank, 2)) for rank in range(2)]
    assert halves[0] + halves[1] == whole[:7] + whole[12:]


def test_rows_say_what_was_served(mixture):
    batch = mixture().batch(((0, 60),))
    sources, epochs, samples, loss, pad = batch.rows.T
    assert list(zip(sources.tolist(), samples.tolist(), strict=True)) == ids_of(batch)
    assert (loss == S).all()
    assert (pad == 0).all()
    assert set(epochs[sources == 1].tolist()) == {0}
    assert np.array_equal(samples, batch.sample_ids.numpy())
