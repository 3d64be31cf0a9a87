"""`argosy train` under the real torchrun, and a place given by srun's environment."""

import subprocess
import sys
from pathlib import Path

import pytest

from argosy.launch.external import Assigned, assigned
from argosy.registry.run_folder import RunFolder
from tiny_runs import RECIPE, digests, losses, make_run, train

TINY = ("objective.tokens=12288", "eval.every_steps=0", "eval.final_tokens=1024", "run.device='cpu'")


@pytest.mark.dist
def test_torchrun_trains_the_same_weights_as_the_launcher_would(tmp_path: Path, run_ranks) -> None:
    """Two real torchrun ranks; a second start says that the run is finished and changes nothing."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "argosy"]
    command += ["train", str(RECIPE), "--run-dir", str(tmp_path / "run"), *(f"--set={one}" for one in TINY)]
    first = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert first.returncode == 0, first.stderr
    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "is finished" in again.stdout

    twin = make_run(tmp_path / "twin", *TINY)
    assert train(run_ranks, twin, 2) == [0, 0]
    run = RunFolder.open(tmp_path / "run")
    assert (losses(run), digests(run, 6)) == (losses(twin), digests(twin, 6))


def test_places_of_torchrun_and_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_STEP_ID", "SLURM_NTASKS_PER_NODE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert assigned() is None
    slurm = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    assert assigned() is None  # inside sbatch, but not a step of srun
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "4")
    assert assigned() == Assigned(rank=5, world_size=8, local_rank=1, local_world_size=4)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert assigned() == Assigned(rank=1, world_size=2, local_rank=1, local_world_size=2)
