import numpy as np
import pytest
import torch
from texts import write_shards

from argosy.data.loader import Loader
from argosy.errors import InputError

S, B = 8, 30


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("loader") / "s", [37] * 40, shard_tokens=200)


def whole_stream(shards):
    return torch.from_numpy(shards.read(0, shards.tokens))


@pytest.mark.parametrize("data_ranks", [1, 2, 3, 5])
def test_the_global_stream_does_not_depend_on_ranks_or_micro_batches(shards, data_ranks):
    """Read back from the tokens themselves: `write_shards` writes each token's place into it."""
    loader = Loader(shards, S, B, seed=1)
    stream = whole_stream(shards)
    for step in range(2 * loader.samples // B + 2):  # over two epoch boundaries
        whole = loader.batch(step)
        share = B // data_ranks
        parts = [
            Loader(shards, S, B, seed=1).batch(step, rank, data_ranks, slice(start, start + 4))
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
    loader = Loader(shards, S, 1, seed=0)
    seen = torch.cat([loader.batch(step).sample_ids for step in range(loader.samples)])
    assert sorted(seen.tolist()) == list(range((shards.tokens - 1) // S))


def test_the_last_exactly_fitting_sample_is_kept(tmp_path):
    shards = write_shards(tmp_path / "s", [3 * S])  # with its end-of-text 3 S + 1 tokens
    loader = Loader(shards, S, 3, seed=0)
    assert loader.samples == 3
    assert 0 in loader.batch(0).targets
    shorter = write_shards(tmp_path / "shorter", [3 * S - 1])
    assert Loader(shorter, S, 2, seed=0).samples == 2


def test_a_batch_is_ready_for_the_model(shards):
    batch = Loader(shards, S, B, seed=1).batch(0, 1, 2)
    assert batch.tokens.shape == batch.targets.shape == (B // 2, S)
    assert batch.tokens.dtype == batch.targets.dtype == batch.sample_ids.dtype == torch.int64
    assert batch.tokens.is_contiguous()
    assert batch.targets.is_contiguous()
    assert (batch.context_tokens, batch.pad_tokens) == (0, 0)


def test_seed_changes_the_order(shards):
    first, second = (Loader(shards, S, B, seed).batch(0).sample_ids for seed in (0, 1))
    assert not torch.equal(first, second)


def test_position_in_epochs(shards):
    loader = Loader(shards, S, B, seed=0)
    assert loader.epoch(0) == 0
    assert np.isclose(loader.epoch(loader.samples), B)


def test_less_than_one_batch_is_refused(shards):
    with pytest.raises(InputError, match=r"189 samples of 8, less than one batch of 190.*smaller batch"):
        Loader(shards, S, 190, seed=0)
