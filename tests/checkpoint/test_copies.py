"""Checkpoints on any store of fsspec: a copy is whole or it is none, and what comes back is what was saved."""

import shutil
from pathlib import Path

import fsspec
import pytest
import torch

from argosy.checkpoint.copies import Copies, CopyError
from argosy.checkpoint.copying import Copied, Copying
from argosy.checkpoint.find import find
from argosy.checkpoint.folders import saved_steps
from argosy.checkpoint.save import save
from argosy.errors import InputError
from programs import manifest_of


def checkpoint(folder: Path, step: int) -> Path:
    return save(folder, {"model": {"a": torch.full((100,), float(step))}}, manifest_of(step), None)


@pytest.fixture(params=["folder", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "far") if request.param == "folder" else f"memory://{tmp_path.name}"


def test_what_was_copied_comes_back(tmp_path: Path, target: str) -> None:
    here, copies = tmp_path / "here", Copies(target, "run")
    assert copies.steps() == []
    for step in (1, 2, 3):
        copies.put(checkpoint(here, step), keep_last=2)
    assert copies.steps() == [3, 2]
    before = {file.name: file.read_bytes() for file in (here / "step-3").iterdir()}
    shutil.rmtree(here)
    folder = copies.fetch(here, 3, generation=5)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    found = find(here)
    assert found is not None
    assert found[1].step == 3
    assert {entry.name for entry in here.iterdir()} == {"step-3", ".generation"}


def test_runs_do_not_see_each_others_copies(tmp_path: Path, target: str) -> None:
    Copies(target, "one").put(checkpoint(tmp_path / "here", 1), keep_last=2)
    assert Copies(target, "other").steps() == []
    with pytest.raises(CopyError):
        Copies(target, "other").fetch(tmp_path / "there", 1, generation=1)
    assert saved_steps(tmp_path / "there") == []


def test_a_copy_without_its_manifest_is_none_and_is_made_again(tmp_path: Path, target: str) -> None:
    copies, folder = Copies(target, "run"), checkpoint(tmp_path / "here", 1)
    copies.put(folder, keep_last=2)
    store, root = fsspec.url_to_fs(target)
    store.rm(f"{root}/run/step-1/manifest.json")
    store.pipe_file(f"{root}/run/step-1/left-over", b"of a copy that was cut")
    assert copies.steps() == []
    copies.put(folder, keep_last=2)
    assert copies.steps() == [1]
    assert not store.exists(f"{root}/run/step-1/left-over")


def test_a_damaged_checkpoint_is_not_copied(tmp_path: Path, target: str) -> None:
    folder = checkpoint(tmp_path / "here", 1)
    file = folder / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="is not copied"):
        Copies(target, "run").put(folder, keep_last=2)
    assert Copies(target, "run").steps() == []


def test_names_of_others_stay(tmp_path: Path) -> None:
    foreign = tmp_path / "far" / "run" / "step-0.backup"
    foreign.mkdir(parents=True)
    copies = Copies(str(tmp_path / "far"), "run")
    for step in (1, 2):
        copies.put(checkpoint(tmp_path / "here", step), keep_last=1)
    assert copies.steps() == [2]
    assert foreign.exists()


def test_an_unknown_store_is_a_mistake_with_a_name() -> None:
    with pytest.raises(CopyError, match=r"checkpoint\.copy_to = 'nowhere://x'"):
        Copies("nowhere://x", "run")


def test_the_newest_is_copied_beside_and_at_the_end(tmp_path: Path) -> None:
    here, far = tmp_path / "here", str(tmp_path / "far")
    copying = Copying(here, far, "run", every_s=3600, keep_last=2)
    assert copying.go_on() is None
    for step in (1, 2, 3):
        checkpoint(here, step)
        copying.offer(step)
        copying.go_on()
    assert copying.finish() == [Copied(1), Copied(3)], "the interval has not passed for step 2"
    assert Copies(far, "run").steps() == [3, 1]
    assert copying.finish() == []


def test_a_store_that_refuses_is_said_in_its_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    checkpoint(tmp_path / "here", 1)
    copying = Copying(tmp_path / "here", str(tmp_path / "file"), "run", every_s=0, keep_last=2)
    copying.offer(1)
    (failed, again) = [*filter(None, [copying.go_on()]), *copying.finish()]
    assert failed.why is not None
    assert "exists" in failed.why or "directory" in failed.why
    assert again.step == 1
