"""What a save, a load and a reshard may take: memory that does not grow, two shards at most, nothing left open."""

import gc
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from argosy.checkpoint.commit import delete
from argosy.checkpoint.confirm import confirm
from argosy.checkpoint.find import find
from argosy.checkpoint.load import fill_chunk, load
from argosy.checkpoint.manifest import read_manifest
from argosy.checkpoint.plan import make_plan
from argosy.checkpoint.reshard import reshard
from argosy.checkpoint.save import save, save_plan
from argosy.checkpoint.shards import Chunk
from memory_peak import peak_bytes
from programs import manifest_of

ROWS, COLUMNS, TENSORS = 512, 1024, 8
SHARD_BYTES = ROWS * COLUMNS * 4
BUFFERS_BYTES = 2_500_000
"""A block that is read and digested at once, names, the manifest."""


def tree_of(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {"model": {f"w{n}": torch.full((ROWS, COLUMNS), value + n) for n in range(TENSORS)}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("whole"), tree_of(1.0), manifest_of(1), None)


def test_a_reshard_takes_two_shards_at_most(whole: Path, tmp_path: Path) -> None:
    manifest = read_manifest(whole)
    made: list[Path] = []
    taken = peak_bytes(lambda: made.append(reshard(whole, manifest, tmp_path / "four", 4)))
    assert taken <= 2 * SHARD_BYTES + BUFFERS_BYTES < TENSORS * SHARD_BYTES / 2, taken
    back = peak_bytes(lambda: made.append(reshard(made[0], read_manifest(made[0]), tmp_path / "one", 1)))
    assert back <= 2 * SHARD_BYTES + BUFFERS_BYTES, back
    tree = tree_of(0.0)
    load(made[1], read_manifest(made[1]), tree, None)
    assert all(torch.equal(tensor, tree_of(1.0)["model"][name]) for name, tensor in tree["model"].items())


def test_a_load_takes_nothing_beside_the_tensors_and_a_part_of_one_no_more_than_the_chunk(whole: Path) -> None:
    manifest, tree = read_manifest(whole), tree_of(0.0)
    assert peak_bytes(lambda: load(whole, manifest, tree, None)) <= BUFFERS_BYTES
    half = torch.empty(ROWS // 2, COLUMNS)
    chunk = Chunk("model.w1", "float32", (ROWS, COLUMNS), (ROWS // 2, 0), (ROWS // 2, COLUMNS))
    assert peak_bytes(lambda: fill_chunk(whole, manifest, chunk, half)) <= SHARD_BYTES + BUFFERS_BYTES
    assert torch.equal(half, torch.full_like(half, 2.0))


def test_a_save_copies_nothing(tmp_path: Path) -> None:
    plan = make_plan(tree_of(1.0), None)
    assert peak_bytes(lambda: save_plan(tmp_path, plan, manifest_of(1), None)) <= BUFFERS_BYTES


def test_verification_is_done_in_a_block(whole: Path) -> None:
    assert peak_bytes(lambda: find(whole.parent)) <= BUFFERS_BYTES


def grown(work: Callable[[int], object], times: int) -> tuple[int, int]:
    """By how much memory [bytes] and open files grow in `times` calls, after ten to warm up."""
    process = psutil.Process()
    for number in range(10):
        work(number)
    gc.collect()
    before = process.memory_info().rss, len(os.listdir("/proc/self/fd"))
    for number in range(10, 10 + times):
        work(number)
    gc.collect()
    return process.memory_info().rss - before[0], len(os.listdir("/proc/self/fd")) - before[1]


def test_fifty_saves_take_no_more_memory_than_one(tmp_path: Path) -> None:
    tree = tree_of(1.0)
    plan = make_plan(tree, None)

    def save_and_forget(number: int) -> None:
        save_plan(tmp_path, plan, manifest_of(number + 1), None)
        confirm(tmp_path, number + 1, 1)
        delete(tmp_path, [number], 1)

    memory_bytes, files = grown(save_and_forget, 50)
    assert memory_bytes < SHARD_BYTES, memory_bytes
    assert files == 0
