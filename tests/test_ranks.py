"""The fixture that all distributed tests stand on: right answers, loud failures, nobody left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

pytestmark = pytest.mark.dist


def sum_of_ranks(offset: float) -> tuple[int, int, float, torch.Tensor]:
    value = torch.tensor(float(dist.get_rank()) + offset)
    dist.all_reduce(value)
    return dist.get_rank(), dist.get_world_size(), value.item(), torch.full((3,), float(dist.get_rank()))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_results_come_in_rank_order(run_ranks, n):
    results = run_ranks(n, sum_of_ranks, 0.5)
    assert [r[0] for r in results] == list(range(n))
    assert {r[1] for r in results} == {n}
    assert {r[2] for r in results} == {n * (n - 1) / 2 + 0.5 * n}
    assert all(torch.equal(r[3], torch.full((3,), float(rank))) for rank, r in enumerate(results))


def norm_on_two_axes() -> float:
    # Already in this process if it was forked warm: DTensor's caches know this product on this shape of mesh.
    from warm_ranks import product_on_two_axes

    return product_on_two_axes(init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "fsdp"))).item()


def test_the_warm_servers_caches_do_not_name_its_dead_group(run_ranks):
    assert run_ranks(4, norm_on_two_axes) == [16.0] * 4  # a 4 × 4 matrix of fours


def one_fsdp_step() -> torch.Tensor:
    torch.manual_seed(0)
    model = fully_shard(nn.Linear(4, 4, bias=False), mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.eye(4)).sum().backward()
    optimizer.step()
    assert isinstance(model.weight, DTensor)
    return model.weight.full_tensor().detach()


def test_a_sharded_step_equals_the_step_of_one_process(run_ranks):
    torch.manual_seed(0)
    model = nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.eye(4)).sum().backward()
    optimizer.step()
    for result in run_ranks(2, one_fsdp_step):
        torch.testing.assert_close(result, model.weight.detach())


def fail_on_rank_one() -> None:
    if dist.get_rank() == 1:
        raise ZeroDivisionError("here")
    dist.barrier()  # rank 1 never comes


def test_an_exception_arrives_with_its_rank_and_traceback_and_the_others_are_killed(run_ranks):
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="here") as caught:
        run_ranks(3, fail_on_rank_one, timeout_s=40)
    assert "rank 1 of 3" in caught.value.__notes__[0]
    assert "in fail_on_rank_one" in caught.value.__notes__[0]
    assert time.monotonic() - began < 20, "the ranks in the barrier were waited for"


def die_on_rank_zero() -> None:
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def test_a_killed_rank_is_named(run_ranks):
    with pytest.raises(RuntimeError):  # rank 0's silence, or what its peer saw of it
        run_ranks(2, die_on_rank_zero)


def hang() -> None:
    time.sleep(600)


def test_the_timeout_names_who_hangs(run_ranks):
    with pytest.raises(TimeoutError, match=r"ranks \[0, 1\]"):
        run_ranks(2, hang, timeout_s=0.5)


def visible_gpus_and_threads() -> tuple[int, int]:
    return torch.cuda.device_count(), torch.get_num_threads()


def test_ranks_see_no_gpu_and_use_one_thread(run_ranks):
    assert run_ranks(2, visible_gpus_and_threads) == [(0, 1), (0, 1)]


def write_pid_and_hang(folder: str) -> None:
    partial = Path(folder, f".{dist.get_rank()}")
    partial.write_text(str(os.getpid()))
    partial.rename(Path(folder, f"pid-{dist.get_rank()}"))
    time.sleep(600)


def test_ranks_die_with_the_test_process(tmp_path):
    code = (
        "import sys, ranks, test_ranks; ranks.run_ranks(2, test_ranks.write_pid_and_hang, sys.argv[1], timeout_s=600)"
    )
    path = os.pathsep.join(sys.path)
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=os.environ | {"PYTHONPATH": path})
    try:
        _until(lambda: len(list(tmp_path.glob("pid-*"))) == 2)
        pids = [int(file.read_text()) for file in tmp_path.glob("pid-*")]
        parent.kill()
        _until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    finally:
        parent.kill()
        parent.wait()


def _until(condition, limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
