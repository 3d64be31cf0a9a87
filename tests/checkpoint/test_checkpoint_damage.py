"""Damage to a checkpoint is found, named and passed over; nothing damaged is ever loaded."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from argosy.checkpoint.commit import delete
from argosy.checkpoint.find import find
from argosy.checkpoint.folders import FENCE_FILE, saved_steps
from argosy.checkpoint.load import load
from argosy.checkpoint.manifest import FILE_NAME, read_manifest
from argosy.checkpoint.save import save
from argosy.checkpoint.verify import find_damage
from argosy.errors import InputError
from programs import Split, make_state, manifest_of, model_table

DATA_FILE = "__0_0.distcp"


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 1 and 2; do not change them."""
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    _, _, tree = make_state(Split(), model_table())
    for step in (1, 2):
        save(checkpoints, tree, manifest_of(step, losses=[0.1, float("nan")]), None)
    return checkpoints


@pytest.fixture
def checkpoints(two_steps: Path, tmp_path: Path) -> Path:
    return shutil.copytree(two_steps, tmp_path / "checkpoints")


def flip(file: Path, offset: int) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 1 << offset % 8
    file.write_bytes(content)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def rewrite(**fields: object) -> Callable[[Path], None]:
    def change(manifest: Path) -> None:
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | fields))

    return change


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "missing data": (DATA_FILE, Path.unlink),
    "missing metadata": (".metadata", Path.unlink),
    "flipped bit": (DATA_FILE, lambda file: flip(file, 1000)),
    "truncated": (DATA_FILE, truncate),
    "folder for a file": (DATA_FILE, make_folder),
    "missing manifest": (FILE_NAME, Path.unlink),
    "empty manifest": (FILE_NAME, lambda file: file.write_text("")),
    "manifest is a list": (FILE_NAME, lambda file: file.write_text("[]")),
    "manifest is no text": (FILE_NAME, lambda file: file.write_bytes(b"\xff\xfe")),
    "truncated manifest": (FILE_NAME, truncate),
    "no files listed": (FILE_NAME, rewrite(files={})),
    "newer schema": (FILE_NAME, rewrite(schema="argosy.checkpoint/3")),
    "manifest of another step": (FILE_NAME, lambda file: shutil.copy(file.parents[1] / "step-1" / FILE_NAME, file)),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_the_newest_whole_step_is_used_and_the_damaged_one_named(checkpoints: Path, kind: str) -> None:
    name, damage = DAMAGE[kind]
    damage(checkpoints / "step-2" / name)
    said: list[str] = []
    found = find(checkpoints, say=said.append)
    assert found is not None
    assert found[1].step == 1
    (line,) = said
    assert "step-2" in line
    assert name in line
    with pytest.raises(InputError, match=name):
        find(checkpoints, 2, say=said.append)


@pytest.mark.parametrize("kind", DAMAGE)
def test_without_a_whole_step_the_files_are_named(checkpoints: Path, kind: str) -> None:
    shutil.rmtree(checkpoints / "step-1") if kind != "manifest of another step" else flip(
        checkpoints / "step-1" / DATA_FILE, 0
    )
    name, damage = DAMAGE[kind]
    damage(checkpoints / "step-2" / name)
    with pytest.raises(InputError, match=f"no whole checkpoint is left.*{name}"):
        find(checkpoints, say=lambda line: None)


def test_no_flipped_bit_goes_unnoticed(checkpoints: Path) -> None:
    folder = checkpoints / "step-2"
    pick = random.Random(0)
    for name in (FILE_NAME, ".metadata", DATA_FILE):
        file = folder / name
        before = file.read_bytes()
        for offset in pick.sample(range(len(before)), 60):
            flip(file, offset)
            try:
                noticed = bool(find_damage(folder, read_manifest(folder)))
            except InputError:
                noticed = True
            assert noticed, f"{name}: byte {offset}"
            file.write_bytes(before)
    assert find_damage(folder, read_manifest(folder)) == []


def test_a_manifest_comes_back_as_it_was_written(two_steps: Path) -> None:
    manifest = read_manifest(two_steps / "step-2")
    assert manifest.training["losses"][0] == 0.1
    assert manifest.training["losses"][1] != manifest.training["losses"][1], "NaN"
    assert set(manifest.files) == {".metadata", DATA_FILE}


def test_keys_of_a_later_version_are_no_damage(checkpoints: Path) -> None:
    file = checkpoints / "step-2" / FILE_NAME
    values = json.loads(file.read_text()) | {"a_later_field": 1}
    del values["xxh3_128"]
    values["xxh3_128"] = xxhash.xxh3_128(json.dumps(values, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps(values))
    assert read_manifest(file.parent).step == 2


def test_another_version_is_told_from_damage_and_not_passed_over(checkpoints: Path) -> None:
    file = checkpoints / "step-2" / FILE_NAME
    for version, remedy in ((1, "with the version that wrote it"), (3, "update Argosy")):
        values = json.loads(file.read_text()) | {"schema": f"argosy.checkpoint/{version}"}
        del values["xxh3_128"]
        values["xxh3_128"] = xxhash.xxh3_128(json.dumps(values, sort_keys=True).encode()).hexdigest()
        file.write_text(json.dumps(values))
        with pytest.raises(InputError, match=f"version 'argosy.checkpoint/{version}'.*{remedy}"):
            find(checkpoints)


def test_a_step_that_is_not_there_is_answered_with_those_that_are(two_steps: Path) -> None:
    with pytest.raises(InputError, match=r"no checkpoint of step 7; there are: 2, 1"):
        find(two_steps, 7)


def test_no_checkpoint_at_all_is_no_error(tmp_path: Path) -> None:
    assert find(tmp_path) is None
    assert find(tmp_path / "missing") is None
    with pytest.raises(InputError, match="there are: none"):
        find(tmp_path, 7)


def test_foreign_names_are_neither_read_nor_deleted(checkpoints: Path) -> None:
    foreign = ["step-007", "step--3", "step-٣", "step-4.old", "step-best", "7", "notes", "Step-9"]
    for name in foreign:
        (checkpoints / name).mkdir()
    (checkpoints / "step-5").write_text("a file")
    assert saved_steps(checkpoints) == [2, 1]
    delete(checkpoints, [1, 7, 9], 1)
    assert sorted(entry.name for entry in checkpoints.iterdir()) == sorted([*foreign, FENCE_FILE, "step-2", "step-5"])


def test_a_checkpoint_of_another_model_is_refused_in_one_line(two_steps: Path) -> None:
    for other in ({"layers": 3}, {"ffn_size": 32}):
        _, _, tree = make_state(Split(), model_table(**other))
        with pytest.raises(InputError, match=r"step-2: is of another model: .*(is not in it|there)") as caught:
            load(two_steps / "step-2", read_manifest(two_steps / "step-2"), tree, None)
        assert "\n" not in str(caught.value)
