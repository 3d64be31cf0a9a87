"""A thousand flipped bits, and worse, in every kind of file: all are found before any tensor is touched."""

import os
import random
import shutil
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from argosy.checkpoint import find as finding
from argosy.checkpoint import verify
from argosy.checkpoint.find import find
from argosy.checkpoint.load import load
from argosy.checkpoint.manifest import FILE_NAME, Manifest, read_manifest
from argosy.checkpoint.save import save
from argosy.checkpoint.seal import FILE_NAME as SEAL
from argosy.checkpoint.seal import broken_files, read_seal, seal
from argosy.checkpoint.verify import Damage, Share
from argosy.errors import InputError
from programs import manifest_of

PAGE = 4096


def tree_of(step: int) -> dict[str, dict[str, torch.Tensor]]:
    """Two matrices of a page each, of which neither is the other, and a scalar."""
    torch.manual_seed(step)
    return {"model": {"a": torch.rand(32, 32), "b": torch.rand(32, 32), "c": torch.tensor(float(step))}}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    for step in (1, 2):
        save(folder, tree_of(step), manifest_of(step, eval_losses=[1.5]), None)
    return folder


@pytest.fixture
def checkpoints(start: Path, tmp_path: Path) -> Path:
    return shutil.copytree(start, tmp_path / "checkpoints")


def flips_missed(folder: Path, files: list[str], count: int, damage: Callable[[], object]) -> list[str]:
    """Flip one bit after the other, undoing each; those that `damage` did not notice."""
    pick = random.Random(0)
    missed = []
    for number in range(count):
        file = folder / files[number % len(files)]
        whole = file.read_bytes()
        bit = pick.randrange(len(whole) * 8)
        with file.open("r+b") as stream:
            stream.seek(bit // 8)
            stream.write(bytes([whole[bit // 8] ^ 1 << bit % 8]))
        try:
            if not damage():
                missed.append(f"{file.name}: bit {bit}")
        except InputError as error:
            if file.name not in str(error):
                missed.append(f"{file.name}: bit {bit}, said to be {error}")
        file.write_bytes(whole)
    return missed


def test_a_thousand_flipped_bits_are_all_found(checkpoints: Path) -> None:
    folder = checkpoints / "step-2"
    files = [FILE_NAME, ".metadata", "__0_0.distcp"]
    assert flips_missed(folder, files, 1000, lambda: verify.find_damage(folder, read_manifest(folder))) == []
    assert verify.find_damage(folder, read_manifest(folder)) == []


def test_so_are_those_in_a_sealed_folder(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="torch.distributed.checkpoint")
        torch.distributed.checkpoint.save(tree_of(1), checkpoint_id=folder, no_dist=True)
    seal(folder)
    files = [SEAL, ".metadata", "__0_0.distcp"]
    assert flips_missed(folder, files, 200, lambda: broken_files(read_seal(folder))) == []


def test_with_digests_ignored_they_would_not_be(checkpoints: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: a verification that looks at nothing but sizes."""
    monkeypatch.setattr(verify, "_differences", lambda descriptor, digest, stored, mine, has_frame: iter(()))
    folder = checkpoints / "step-2"
    missed = flips_missed(folder, ["__0_0.distcp"], 50, lambda: verify.find_damage(folder, read_manifest(folder)))
    assert len(missed) == 50


def zero_page(folder: Path) -> None:
    with (folder / "__0_0.distcp").open("r+b") as file:
        file.seek(PAGE)
        file.write(bytes(PAGE))


def place(folder: Path, name: str) -> tuple[int, int]:
    (one,) = read_manifest(folder).tensors[name].chunks
    return one.at, 32 * 32 * 4


def swap_shards(folder: Path) -> None:
    """Two tensors of equal shape and type change places: each has whole content, of the other."""
    (a, size), (b, _) = place(folder, "model.a"), place(folder, "model.b")
    content = bytearray((folder / "__0_0.distcp").read_bytes())
    content[a : a + size], content[b : b + size] = content[b : b + size], content[a : a + size]
    (folder / "__0_0.distcp").write_bytes(content)


def stale_shard(folder: Path) -> None:
    """One tensor is that of the step before, with an intact frame around it."""
    at, size = place(folder, "model.a")
    before = (folder.parent / "step-1" / "__0_0.distcp").read_bytes()
    with (folder / "__0_0.distcp").open("r+b") as file:
        file.seek(at)
        file.write(before[at : at + size])


def stale_scalar(folder: Path) -> None:
    (one,) = read_manifest(folder).tensors["model.c"].chunks
    with (folder / "__0_0.distcp").open("r+b") as file:
        file.seek(one.at)
        file.write(struct.pack("f", 1.0))


def truncate(folder: Path) -> None:
    file = folder / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[: -PAGE - 1])


def longer(folder: Path) -> None:
    with (folder / "__0_0.distcp").open("ab") as file:
        file.write(b"\0")


def loop(folder: Path) -> None:
    (folder / "__0_0.distcp").unlink()
    (folder / "__0_0.distcp").symlink_to("__0_0.distcp")


def pipe(folder: Path) -> None:
    (folder / "__0_0.distcp").unlink()
    os.mkfifo(folder / "__0_0.distcp")


def stale_file(folder: Path) -> None:
    shutil.copy(folder.parent / "step-1" / "__0_0.distcp", folder / "__0_0.distcp")


def empty(folder: Path) -> None:
    (folder / "__0_0.distcp").write_bytes(b"")


@pytest.mark.parametrize(
    "damage", [zero_page, swap_shards, stale_shard, stale_scalar, truncate, longer, loop, pipe, stale_file, empty]
)
def test_every_kind_of_damage_sends_the_load_to_the_step_before(
    checkpoints: Path, damage: Callable[[Path], None]
) -> None:
    damage(checkpoints / "step-2")
    said: list[str] = []
    found = find(checkpoints, say=said.append, generation=7)
    assert found is not None
    assert found[1].step == 1
    assert "__0_0.distcp" in said[0]
    assert said[1] == "set aside as step-2.damaged"
    assert (checkpoints / "step-2.damaged").is_dir()
    tree = tree_of(9)
    load(*found, tree, None)
    assert all(torch.equal(tree["model"][name], tensor) for name, tensor in tree_of(1)["model"].items())


def test_a_second_damaged_one_of_a_step_gets_a_name_of_its_own(checkpoints: Path) -> None:
    (checkpoints / "step-2.damaged").mkdir()
    zero_page(checkpoints / "step-2")
    find(checkpoints, say=lambda line: None, generation=7)
    assert (checkpoints / "step-2.damaged-2" / "__0_0.distcp").exists()


def test_where_only_damaged_ones_are_left_nothing_starts_from_scratch(checkpoints: Path) -> None:
    zero_page(checkpoints / "step-1")
    zero_page(checkpoints / "step-2")
    for _ in range(2):
        with pytest.raises(InputError, match=r"no whole checkpoint is left: .*step-2.*step-1"):
            find(checkpoints, say=lambda line: None, generation=7)
    shutil.rmtree(checkpoints / "step-1")
    (checkpoints / "step-2").rename(checkpoints / "step-2.damaged")
    with pytest.raises(InputError, match=r"no whole checkpoint is left: step-2\.damaged"):
        find(checkpoints, say=lambda line: None, generation=7)


def test_content_that_changes_between_check_and_load_is_refused(checkpoints: Path) -> None:
    found = find(checkpoints)
    assert found is not None
    swap_shards(found[0])
    with pytest.raises(InputError, match=r"model\.[ab] differs from its digest"):
        load(*found, tree_of(9), None)


def one_rank_sees_it(checkpoints: Path, victim: int) -> int:
    """The disk of one rank fails while it verifies the newest step; the step that this rank would load."""
    rank = dist.get_rank()
    real = finding.find_damage

    def broken(folder: Path, manifest: Manifest, share: Share) -> list[Damage]:
        if rank == victim and manifest.step == 2:
            raise OSError(5, "Input/output error")
        return real(folder, manifest, share)

    finding.find_damage = broken  # type: ignore[assignment]
    found = find(checkpoints, group=dist.group.WORLD, say=lambda line: None)
    assert found is not None
    return found[1].step


@pytest.mark.dist
@pytest.mark.parametrize("victim", [0, 1])
def test_all_ranks_go_back_when_one_sees_damage(checkpoints: Path, run_ranks: Any, victim: int) -> None:
    assert run_ranks(2, one_rank_sees_it, checkpoints, victim) == [1, 1]


def damage_in_a_part(checkpoints: Path, number: int) -> int:
    """One chunk of many is damaged; with the reading shared out, exactly one rank can see it."""
    group = dist.group.WORLD
    if dist.get_rank() == 0:
        folder = checkpoints / "step-2"
        one = list(read_manifest(folder).stored())[number]
        with (folder / one.file).open("r+b") as file:
            file.seek(one.at)
            byte = file.read(1)[0]
            file.seek(one.at)
            file.write(bytes([byte ^ 4]))
    dist.barrier()
    found = find(checkpoints, group=group, say=lambda line: None)
    assert found is not None
    return found[1].step


@pytest.mark.dist
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_ranks_together_verify_every_chunk(checkpoints: Path, run_ranks: Any, number: int) -> None:
    assert run_ranks(3, damage_in_a_part, checkpoints, number) == [1, 1, 1]
