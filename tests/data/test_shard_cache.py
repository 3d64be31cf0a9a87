"""Thousands of shards behind a bounded number of open files, each block checked before its tokens are used."""

import json
import os

import numpy as np
import pytest
from texts import split_loader, write_shards

from argosy.data import shard_writer
from argosy.data.shard_files import CHECKED_BYTES
from argosy.data.shard_writer import ShardWriter
from argosy.data.shards import MANIFEST, TokenShards
from argosy.errors import InputError


def flip(path, at):
    """Change one bit of a file, as a disk might."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 4]))


@pytest.fixture
def quick_disk(monkeypatch):
    """Thousands of files are not flushed to the device one by one: nothing here is about power cuts."""
    monkeypatch.setattr(shard_writer, "fsync", lambda path: None)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.usefixtures("quick_disk")
def test_two_thousand_shards_with_few_open_files(tmp_path):
    shards = write_shards(tmp_path / "s", [9] * 2000, shard_tokens=10)
    assert shards.count == 2000
    loader = split_loader(TokenShards.open(shards.folder, most_mapped=20), 16)
    samples = loader.packings[0].samples
    before = len(os.listdir("/proc/self/fd"))
    seen = []
    for first in range(0, samples, 50):
        batch = loader.batch(((first, min(50, samples - first)),))
        seen += batch.sample_ids.tolist()
        place = batch.sample_ids.numpy()[:, None] * 16 + np.arange(16)
        assert (batch.tokens.numpy() == np.where(place % 10 == 9, 0, place + 1)).all()
        assert loader.packings[0].shards.mapped <= 20
        assert len(os.listdir("/proc/self/fd")) <= before + 25
    assert sorted(seen) == list(range(samples))


@pytest.mark.usefixtures("quick_disk")
def test_opening_many_shards_maps_none_of_them(tmp_path):
    shards = write_shards(tmp_path / "s", [9] * 300, shard_tokens=10)
    assert TokenShards.open(shards.folder).mapped == 0


def test_a_flipped_bit_is_found_by_verify_and_before_its_tokens_are_used(tmp_path):
    words = 3 * CHECKED_BYTES // 4  # uint32
    shards = write_shards(tmp_path / "s", [words - 1], vocab_size=1 << 20)
    path = shards.folder / "tokens-00000.bin"
    flip(path, CHECKED_BYTES + 10)
    with pytest.raises(InputError, match=r"tokens-00000\.bin: wrong digest"):
        TokenShards.open(shards.folder, verify=True)
    opened = TokenShards.open(shards.folder)
    per_block = CHECKED_BYTES // 4
    assert opened.read(0, per_block)[-1] == per_block, "the blocks around it are whole"
    assert opened.read(2 * per_block, 2 * per_block + 5)[0] == 2 * per_block + 1
    for start, stop in ((per_block - 1, per_block + 1), (per_block, per_block + 1), (2 * per_block - 1, 3 * per_block)):
        with pytest.raises(
            InputError, match=rf"tokens-00000\.bin: bytes {CHECKED_BYTES} to {2 * CHECKED_BYTES} are not"
        ):
            TokenShards.open(shards.folder).read(start, stop)
    loader = split_loader(TokenShards.open(shards.folder), 64)
    with pytest.raises(InputError, match="not what was written"):
        loader.batch(((0, loader.packings[0].samples),))


@pytest.mark.parametrize("what", ["ends", "loss"])
def test_side_files_are_checked_before_use_too(tmp_path, what):
    with ShardWriter(tmp_path / "s", 100, 0) as writer:
        for _ in range(5):
            writer.add(np.arange(1, 9), 8, np.arange(8) > 3)
    shards = TokenShards.open(tmp_path / "s")
    flip(tmp_path / "s" / f"{what}-00000.bin", 3)
    with pytest.raises(InputError, match=rf"{what}-00000\.bin: wrong digest"):
        shards.ends_between(0, 20) if what == "ends" else shards.read_loss(0, 20)


def test_folders_of_earlier_versions_are_checked_as_a_whole(tmp_path):
    shards = write_shards(tmp_path / "s", [50])
    manifest = json.loads((shards.folder / MANIFEST).read_text())
    for shard in manifest["shards"]:
        del shard["sums_digest"]
    (shards.folder / MANIFEST).write_text(json.dumps(manifest))
    (shards.folder / "sums-00000.bin").unlink()
    old = TokenShards.open(shards.folder)
    assert old.digest == shards.digest
    assert old.read(3, 6).tolist() == [4, 5, 6]
    flip(shards.folder / "tokens-00000.bin", 90)
    with pytest.raises(InputError, match="wrong digest"):
        TokenShards.open(shards.folder).read(0, 1)


def test_what_was_checked_once_is_not_checked_again(tmp_path):
    shards = write_shards(tmp_path / "s", [40])
    assert shards.read(0, 1)[0] == 1
    flip(shards.folder / "tokens-00000.bin", 8)
    shards.read(0, 10)  # the block was whole when it was first used: a check costs once, not at each read
