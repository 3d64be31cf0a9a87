import json

import numpy as np
import pytest
from texts import write_shards

from argosy.data.shard_writer import ShardWriter
from argosy.data.shards import TokenShards
from argosy.errors import InputError


def stream(lengths):
    """What `write_shards` writes."""
    return np.concatenate([np.append(piece, 0) for piece in _documents(lengths)])


def _documents(lengths):
    place = 0
    for length in lengths:
        yield np.arange(place + 1, place + length + 1)
        place += length + 1


LENGTHS = [5, 1, 0, 30, 7, 12, 3]


@pytest.mark.parametrize("shard_tokens", [1, 10, 1 << 20])
def test_the_stream_does_not_depend_on_how_it_is_cut(tmp_path, shard_tokens):
    shards = write_shards(tmp_path / "s", LENGTHS, shard_tokens=shard_tokens)
    expected = stream(LENGTHS)
    assert shards.tokens == expected.size
    assert shards.documents == len(LENGTHS)
    assert shards.text_bytes == sum(LENGTHS)
    assert shards.count == {1: 7, 10: 5, 1 << 20: 1}[shard_tokens]
    for start in range(expected.size):
        for stop in range(start, expected.size + 1):
            assert np.array_equal(shards.read(start, stop), expected[start:stop])
    ends = np.concatenate(list(shards.document_ends()))
    assert np.array_equal(ends, np.cumsum(np.array(LENGTHS) + 1))
    shards.verify()


def test_small_vocabularies_take_two_bytes(tmp_path):
    assert write_shards(tmp_path / "small", [9], vocab_size=65_536).dtype.itemsize == 2
    assert write_shards(tmp_path / "large", [9], vocab_size=65_537).dtype.itemsize == 4


def test_a_vocabulary_that_is_too_small_is_named(tmp_path):
    shards = write_shards(tmp_path / "s", [9], vocab_size=50)
    shards.check_vocab(10)
    with pytest.raises(InputError, match=r"token id 9 is beyond the model's vocabulary of 9.*model\.vocab_size to 50"):
        shards.check_vocab(9)


def test_equal_streams_have_equal_digests(tmp_path):
    first, same, other = (write_shards(tmp_path / name, [9, size]) for name, size in (("a", 3), ("b", 3), ("c", 4)))
    assert first.digest == same.digest != other.digest


def test_without_its_end_there_is_no_data(tmp_path):
    def write_and_die():
        with ShardWriter(tmp_path / "s", 50, 0) as writer:
            writer.add(np.arange(5), 5)
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_and_die()
    with pytest.raises(InputError, match="no manifest"):
        TokenShards.open(tmp_path / "s")


def test_damage_is_found(tmp_path):
    folder = tmp_path / "s"
    with pytest.raises(InputError, match="no such data folder"):
        TokenShards.open(folder)
    write_shards(folder, LENGTHS)
    tokens = folder / "tokens-00000.bin"
    whole = tokens.read_bytes()

    tokens.write_bytes(whole[:-1])
    with pytest.raises(
        InputError, match=rf"tokens-00000.bin: shard has {len(whole) - 1} bytes instead of {len(whole)}"
    ):
        TokenShards.open(folder)

    tokens.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    TokenShards.open(folder)
    with pytest.raises(InputError, match=r"tokens-00000.bin: wrong digest"):
        TokenShards.open(folder, verify=True)

    tokens.unlink()
    with pytest.raises(InputError, match="shard is missing"):
        TokenShards.open(folder)
    tokens.write_bytes(whole)
    TokenShards.open(folder, verify=True)


def test_manifests_that_cannot_be_read_are_named(tmp_path):
    folder = tmp_path / "s"
    write_shards(folder, LENGTHS)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for content, message in (
        ("{", "unreadable manifest"),
        (json.dumps(manifest | {"schema": "argosy.shards/2"}), "argosy.shards/2"),
        (json.dumps({"schema": manifest["schema"]}), "lacks 'vocab_size'"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            TokenShards.open(folder)


def test_empty_shards_are_refused(tmp_path):
    with pytest.raises(InputError, match="holds no tokens"):
        write_shards(tmp_path / "s", [])
