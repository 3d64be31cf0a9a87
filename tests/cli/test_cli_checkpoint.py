"""`argosy checkpoint` as it is typed, also on what is no checkpoint, and not a whole one."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from argosy.checkpoint.confirm import confirm
from argosy.checkpoint.manifest import FILE_NAME
from argosy.checkpoint.save import save
from argosy.cli.main import main
from argosy.errors import Exit
from programs import manifest_of


def argosy(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def tree_of(value: float, rows: int = 6) -> dict[str, dict[str, torch.Tensor]]:
    return {"model": {"a": torch.full((rows, 4), value), "b": torch.tensor([1.0, 2.0], dtype=torch.bfloat16)}}


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    for step in (5, 10):
        save(folder, tree_of(step), manifest_of(step, eval_losses=[3.25]), None)
    confirm(folder, 5, 1)
    return folder


def damage(folder: Path) -> None:
    with (folder / "__0_0.distcp").open("r+b") as file:
        file.seek(600)
        file.write(b"!!!!")


def test_list(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoints / "step-3.damaged").mkdir()
    (checkpoints / "step-10.backup").mkdir()
    assert argosy("checkpoint", "list", checkpoints) == Exit.DONE
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [["step-10", "written"], ["step-5", "verified"], ["step-3.damaged", "set"]]
    assert argosy("checkpoint", "list", checkpoints.parent, "--json") == Exit.DONE
    rows = json.loads(capsys.readouterr().out)["checkpoints"]
    assert [(row["name"], row["state"], row["loss"]) for row in rows[:2]] == [
        ("step-10", "written", 3.25),
        ("step-5", "verified", 3.25),
    ]
    assert rows[0]["tensors"] == 2


def test_verify_names_what_is_damaged(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert argosy("checkpoint", "verify", checkpoints) == Exit.DONE
    damage(checkpoints / "step-10")
    assert argosy("checkpoint", "verify", checkpoints) == Exit.CHECK_SAYS_NO
    said = capsys.readouterr().out
    assert "step-10: damaged: __0_0.distcp (model.a differs)" in said
    assert argosy("checkpoint", "verify", checkpoints / "step-10", "--json") == Exit.CHECK_SAYS_NO
    found = json.loads(capsys.readouterr().out)
    assert (found["whole"], found["checkpoints"][0]["damage"][0]["file"]) == (False, "__0_0.distcp")
    assert argosy("checkpoint", "verify", checkpoints / "step-5") == Exit.DONE


def test_diff_and_reshard(checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = checkpoints / "step-5", checkpoints / "step-10"
    assert argosy("checkpoint", "diff", one, other) == Exit.CHECK_SAYS_NO
    said = capsys.readouterr().out
    assert "model.a: 24 of 24 elements differ by 5 at most" in said
    assert "1 tensors have equal bits, 1 differ" in said
    assert argosy("checkpoint", "reshard", one, tmp_path / "four", "--ranks", 4) == Exit.DONE
    assert len(list((tmp_path / "four" / "step-5").glob("*.distcp"))) == 4
    assert argosy("checkpoint", "reshard", tmp_path / "four" / "step-5", tmp_path / "one") == Exit.DONE
    assert argosy("checkpoint", "diff", one, tmp_path / "one" / "step-5", "--json") == Exit.DONE
    assert argosy("checkpoint", "verify", tmp_path / "four") == Exit.DONE
    capsys.readouterr()
    assert argosy("checkpoint", "reshard", one, tmp_path / "four", "--ranks", 4) == Exit.INPUT
    assert "exists already" in capsys.readouterr().err


def test_diff_names_other_shapes_and_lone_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "x", tree_of(1.0), manifest_of(1), None)
    other = tree_of(1.0, rows=7)
    other["model"]["c"] = other["model"].pop("b")
    save(tmp_path / "y", other, manifest_of(1), None)
    assert argosy("checkpoint", "diff", tmp_path / "x" / "step-1", tmp_path / "y" / "step-1") == Exit.CHECK_SAYS_NO
    said = capsys.readouterr().out
    assert "model.a: float32 [6, 4] and float32 [7, 4]" in said
    assert "model.b: only in the first" in said
    assert "model.c: only in the second" in said


def folder_of(kind: str, path: Path) -> str:
    """A checkpoint of another trainer; the name of its file of weights."""
    if kind == "dcp":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="torch.distributed.checkpoint")
            dcp.save({"a": torch.ones(100), "n": 7}, checkpoint_id=path, no_dist=True)
        return "__0_0.distcp"
    path.mkdir()
    save_file({"a": torch.ones(100)}, path / "model.safetensors")
    (path / "config.json").write_text("{}")
    return "model.safetensors"


@pytest.mark.parametrize("kind", ["dcp", "safetensors"])
def test_seal(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    path = tmp_path / "theirs"
    weights = path / folder_of(kind, path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    assert argosy("checkpoint", "seal", path, "--json") == Exit.DONE
    assert json.loads(capsys.readouterr().out)["kind"] == kind
    assert {name: (path / name).read_bytes() for name in before} == before
    assert argosy("checkpoint", "verify", path) == Exit.DONE
    assert argosy("checkpoint", "seal", path) == Exit.USAGE
    content = bytearray(weights.read_bytes())
    content[-100] ^= 1
    weights.write_bytes(content)
    (path / "later").write_text("")
    capsys.readouterr()
    assert argosy("checkpoint", "verify", path) == Exit.CHECK_SAYS_NO
    assert capsys.readouterr().out == f"theirs: damaged: {weights.name} (its bytes differ); not in the seal: later\n"
    weights.unlink()
    assert argosy("checkpoint", "verify", path) == Exit.CHECK_SAYS_NO


@pytest.mark.parametrize("kind", ["dcp", "safetensors"])
def test_a_folder_that_is_incomplete_already_is_not_sealed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path = tmp_path / "theirs"
    weights = path / folder_of(kind, path)
    weights.write_bytes(weights.read_bytes()[:-40])
    assert argosy("checkpoint", "seal", path) == Exit.INPUT
    assert "already" in capsys.readouterr().err
    assert not (path / "argosy-seal.json").exists()


def make_bad(tmp_path: Path, checkpoints: Path) -> dict[str, tuple[tuple[Any, ...], int, str]]:
    """Words after `argosy checkpoint`, the exit code and what is said."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    shutil.copytree(checkpoints, tmp_path / "zero")
    (tmp_path / "zero" / "step-10" / FILE_NAME).write_bytes(b"")
    shutil.copytree(checkpoints / "step-5", tmp_path / "step-best")
    return {
        "no such folder": (("list", tmp_path / "none"), Exit.INPUT, "no such folder"),
        "a file": (("verify", tmp_path / "notes" / "todo.txt"), Exit.INPUT, "it is a file"),
        "an empty folder": (("verify", tmp_path / "empty"), Exit.INPUT, "it is empty"),
        "another folder": (("verify", tmp_path / "notes"), Exit.INPUT, "there are: todo.txt"),
        "a loop of links": (("verify", tmp_path / "loop"), Exit.INPUT, "no such folder"),
        "another name": (("verify", tmp_path / "step-best"), Exit.INPUT, "under another name"),
        "nothing to compare": (("diff", tmp_path / "notes", checkpoints / "step-5"), Exit.INPUT, "nothing to start"),
        "0 bytes, verified": (("verify", tmp_path / "zero"), Exit.CHECK_SAYS_NO, ""),
        "0 bytes, resharded": (("reshard", tmp_path / "zero" / "step-10", tmp_path / "o"), Exit.INPUT, "damaged mani"),
        "no place to write": (("reshard", checkpoints / "step-5", tmp_path / "notes" / "todo.txt"), Exit.INPUT, ""),
        "a seal on ours": (("seal", checkpoints / "step-5"), Exit.USAGE, "has digests already"),
        "a seal on nothing": (("seal", tmp_path / "notes"), Exit.INPUT, "neither a .metadata of DCP nor safetensors"),
        "a seal on no folder": (("seal", tmp_path / "none"), Exit.INPUT, "no such folder"),
        "no ranks": (("reshard", checkpoints / "step-5", tmp_path / "o", "--ranks", "0"), Exit.USAGE, "ranks"),
    }


def test_bad_input_is_one_line_with_its_exit_code(
    tmp_path: Path, checkpoints: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, (words, code, said) in make_bad(tmp_path, checkpoints).items():
        assert argosy("checkpoint", *words) == code, name
        out = capsys.readouterr()
        assert said in out.err, name
        assert out.err.count("\n") == (code != Exit.CHECK_SAYS_NO), f"{name}: {out.err}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user, who may read less")
def test_without_permission_nothing_is_called_damaged(checkpoints: Path) -> None:
    """Run as `nobody`, through the CLI."""
    for folder in checkpoints.parents:
        if folder.stat().st_uid == os.geteuid() and folder != folder.parent:
            folder.chmod(folder.stat().st_mode | 0o055)
    subprocess.run(["chmod", "-R", "a+rX", checkpoints], check=True)
    (checkpoints / "step-10" / "__0_0.distcp").chmod(0o600)
    program = (
        "import os, sys; from argosy.cli import checkpoint, main; import argosy.checkpoint.check; os.setuid(65534)\n"
        f"main.main(['checkpoint', 'verify', {str(checkpoints)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (Exit.INPUT, "")
    assert "__0_0.distcp: may not be read → give this user the permission" in done.stderr
