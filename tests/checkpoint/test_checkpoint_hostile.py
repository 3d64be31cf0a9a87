"""Files that were made to hurt: nothing in them is executed, and reading them takes little memory and ends."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bombs import MANIFESTS, PICKLES, signed
from hypothesis import given
from hypothesis import strategies as st

from argosy.checkpoint.dcp import dcp_metadata
from argosy.checkpoint.dcp_index import parse_index, read_index
from argosy.checkpoint.find import find
from argosy.checkpoint.load import load
from argosy.checkpoint.manifest import FILE_NAME, parse_manifest
from argosy.checkpoint.save import save
from argosy.checkpoint.seal import seal
from argosy.checkpoint.shards import Chunk
from argosy.checkpoint.write import place
from argosy.errors import InputError
from programs import manifest_of

TREE = {"model": {"w": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(1.0)}}
CHUNK = Chunk("model.w", "bfloat16", (4, 4), (0, 0), (4, 4))
METADATA = dcp_metadata(place([CHUNK], "__0_0.distcp"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


class Command:
    """What a pickle can do to its reader."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = save(tmp_path_factory.mktemp("c"), TREE, manifest_of(1), None)
    values = json.loads((folder / FILE_NAME).read_text())
    del values["xxh3_128"]
    return values


def refusal(parse: Callable[[bytes, str], Any], content: bytes) -> str | None:
    """How `content` is refused; None where it is read. Any other exception fails the test."""
    try:
        parse(content, "here")
    except InputError as error:
        return str(error)
    return None


@given(st.binary(max_size=300))
def test_any_bytes_are_no_manifest(content: bytes) -> None:
    with pytest.raises(InputError):
        parse_manifest(content, "here")


@given(json_values)
def test_any_json_is_no_manifest(value: Any) -> None:
    with pytest.raises(InputError):
        parse_manifest(json.dumps(value).encode(), "here")
    if isinstance(value, dict):
        with pytest.raises(InputError):
            parse_manifest(signed(value), "here")


@given(st.data())
def test_a_whole_manifest_with_any_value_anywhere_is_read_or_refused(
    manifest: dict[str, Any], data: st.DataObject
) -> None:
    """Its digest is right: only a look at the values can refuse it."""
    values = json.loads(json.dumps(manifest))
    inner: Any = values
    while True:
        key = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
        if isinstance(inner[key], dict | list) and inner[key] and data.draw(st.booleans()):
            inner = inner[key]
            continue
        break
    inner[key] = data.draw(json_values)
    assert refusal(parse_manifest, signed(values)) in (None, "here: damaged manifest")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("files", "../../etc/passwd"), {"bytes": 1, "xxh3_128": ""}),
        (("files", "a/b"), {"bytes": 1, "xxh3_128": ""}),
        (("files", FILE_NAME), {"bytes": 1, "xxh3_128": ""}),
        (("files", "__0_0.distcp", "bytes"), 1),
        (("tensors", "model.w", "shape"), [2, 4]),
        (("tensors", "model.w", "shape"), [2, -3]),
        (("tensors", "model.w", "dtype"), "float128"),
        (("tensors", "model.w", "chunks"), []),
        (("tensors", "model.w", "chunks", 0, "file"), "elsewhere"),
        (("tensors", "model.w", "chunks", 0, "at"), -1),
        (("tensors", "model.w", "chunks", 0, "at"), 10**18),
        (("tensors", "model.w", "chunks", 0, "offsets"), [1, 0]),
        (("tensors", "model.w", "chunks", 0, "offsets"), [-1, 0]),
        (("tensors", "model.w", "chunks", 0, "sizes"), [2]),
        (("step",), "one"),
        (("training",), []),
    ],
)
def test_what_cannot_be_is_refused_though_its_digest_is_right(
    manifest: dict[str, Any], path: tuple[Any, ...], value: Any
) -> None:
    values = json.loads(json.dumps(manifest))
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(InputError, match="damaged manifest"):
        parse_manifest(signed(values), "here")
    assert parse_manifest(signed(manifest), "here").step == 1


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: METADATA[: -len(tail) or None] + tail))
def test_any_bytes_are_read_as_metadata_or_refused(content: bytes) -> None:
    assert "metadata of DCP" in (refusal(parse_index, content) or "metadata of DCP")


@given(st.integers(0, len(METADATA) - 1), st.integers(0, 255))
def test_metadata_with_any_byte_changed_is_read_or_refused(at: int, byte: int) -> None:
    changed = METADATA[:at] + bytes([byte]) + METADATA[at + 1 :]
    assert "metadata of DCP" in (refusal(parse_index, changed) or "metadata of DCP")


def test_metadata_is_read_as_it_was_written() -> None:
    (one,) = place([CHUNK], "__0_0.distcp")
    (size,) = parse_index(METADATA, "here").values()
    assert size > one.at + CHUNK.bytes


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_command_in_metadata_is_ever_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "mark"
    folder = save(tmp_path / "c", TREE, manifest_of(1), None)
    hostile = pickle.dumps({"storage_data": Command(mark)}, protocol)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for place_ in (folder, theirs):
        (place_ / ".metadata").write_bytes(hostile)
    with pytest.raises(InputError, match=r"no plain metadata of DCP: it names posix\.system"):
        read_index(theirs / ".metadata")
    with pytest.raises(InputError):
        seal(theirs)
    with pytest.raises(InputError, match=r"\.metadata"):
        find(tmp_path / "c", say=lambda line: None)
    assert not mark.exists()
    pickle.loads(hostile)
    assert mark.exists(), "or the test would prove nothing"


def test_a_load_does_not_look_at_the_pickle(tmp_path: Path) -> None:
    """What is read are the manifest and the shards: a load of verified files needs nothing else of the folder."""
    save(tmp_path, TREE, manifest_of(1), None)
    found = find(tmp_path)
    assert found is not None
    (found[0] / ".metadata").unlink()
    tree = {"model": {name: torch.zeros_like(tensor) for name, tensor in TREE["model"].items()}}
    load(*found, tree, None)
    assert torch.equal(tree["model"]["w"], TREE["model"]["w"])


def test_bombs_are_refused_in_half_a_gigabyte() -> None:
    script = Path(__file__).with_name("bombs.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout)
    assert set(answers) == MANIFESTS.keys() | PICKLES.keys()
    assert {name: words for name, words in answers.items() if not words.startswith("file: ")} == {}
