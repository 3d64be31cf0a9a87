"""Import and export hold a bounded part of the model in memory, counted allocation by allocation."""

from pathlib import Path

from argosy.checkpoint.export import export
from argosy.checkpoint.imports import import_folder
from argosy.checkpoint.origin import find_origin
from hf_folders import QWEN3, tensors_in_folder, write_folder
from memory_peak import peak_bytes

SHAPE = QWEN3 | {"layers": 16, "hidden_size": 256, "ffn_size": 1024}
LARGEST_BYTES = 256 * 1024 * 4
DIGEST_BYTES = 2 << 22
"""Digests read files in blocks of 4 MiB, the next while the last is still there."""
SMALL_CHANGE_BYTES = 1_000_000
"""Manifests, names, buffers of files."""


def test_import_holds_one_tensor_and_export_one_file(tmp_path: Path) -> None:
    small, whole = tmp_path / "small", tmp_path / "whole"
    write_folder(small)
    import_folder(small, tmp_path / "warm")  # imports and caches are not what is counted
    export(find_origin(str(tmp_path / "warm")), tmp_path / "warm out")
    write_folder(whole, SHAPE)
    mapped = (whole / "model.safetensors").stat().st_size
    shard_bytes = 3_000_000

    taken = peak_bytes(lambda: import_folder(whole, tmp_path / "in"), mapped)
    given = peak_bytes(lambda: export(find_origin(str(tmp_path / "in")), tmp_path / "out", shard_bytes=shard_bytes))
    everything = peak_bytes(lambda: {name: t.clone() for name, t in tensors_in_folder(whole).items()}, mapped)

    constant = DIGEST_BYTES + SMALL_CHANGE_BYTES
    assert taken <= 2 * LARGEST_BYTES + constant < mapped / 5, taken
    assert given <= 2 * shard_bytes + constant < mapped / 4, given
    assert everything >= mapped - SMALL_CHANGE_BYTES, "or the count would see nothing"
