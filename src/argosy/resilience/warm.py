"""The server side of :mod:`argosy.resilience.forkserver`: ``python -m argosy.resilience.warm FD MODULE:FUNCTION``.

Warm means: torch and the engine are imported, and two steps of FSDP2, of replicas and of AdamW were made on the *fake*
process group. The first `fully_shard` imports some two hundred modules and the first optimizer step costs a quarter of
a second, which a restart would pay each time. One thread, no gloo and no CUDA: none of them survives a fork.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from argosy.resilience.forkserver import PR_SET_PDEATHSIG, libc

Entry = Callable[[list[str]], int]


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    name, _, function = sys.argv[2].partition(":")
    module = importlib.import_module(name)
    entry: Entry = getattr(module, function)
    module.preload()
    warm_torch()
    gc.collect()
    gc.freeze()  # shared with the workers: a collection there need not touch, and copy, these pages
    connection.sendall(b'{"warm": true}\n')
    with connection.makefile("rb") as requests:
        for line in requests:
            pids = _fork_twice(connection, entry, json.loads(line))
            connection.sendall(json.dumps({"pids": pids}).encode() + b"\n")


def warm_torch() -> None:
    """Two steps of each kind of program on four pretended ranks."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from argosy.parallel.mesh import forget_groups

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a toy model; in a worker they would be about the user's
        for sizes in ((4, 1), (1, 4), (2, 2)):
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
            try:
                _two_steps(*sizes)
            finally:
                dist.destroy_process_group()
    forget_groups()


def _two_steps(dp: int, fsdp: int) -> None:
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import DTensor

    mesh = init_device_mesh("cpu", (dp, fsdp), mesh_dim_names=("dp", "fsdp"))
    model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 8), nn.Linear(8, 16))
    if fsdp > 1:
        for layer in (*model, model):
            fully_shard(layer, mesh=mesh if dp > 1 else mesh["fsdp"], mp_policy=MixedPrecisionPolicy())
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.zeros(2, 4, dtype=torch.long)
    for _ in range(2):
        heads = torch.ones(1, 2, 4, 8, requires_grad=True)
        nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum().backward()
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        norms = [torch.linalg.vector_norm(p.grad) for p in model.parameters() if p.grad is not None]
        torch.stack([norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms])
        optimizer.step()
        optimizer.zero_grad()


def _fork_twice(connection: socket.socket, entry: Entry, requests: list[dict[str, Any]]) -> list[int]:
    """The pids of workers, one per request, whose parent has already ended, so that the supervisor has them."""
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        for request in requests:
            worker = os.fork()
            if worker == 0:
                os.close(reading)
                os.close(writing)
                connection.close()
                _become_worker(entry, request)
            os.write(writing, f"{worker}\n".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        pids = [int(line) for line in lines]
    os.waitpid(middle, 0)
    return pids


def _become_worker(entry: Entry, request: dict[str, Any]) -> None:
    """Never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        # Set only when the supervisor is the parent: the end of the process in between must not be ours.
        while (parent := os.getppid()) != request["supervisor"]:
            if parent == 1:
                os._exit(1)
            time.sleep(0.0001)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != request["supervisor"]:
            os._exit(1)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for ours, theirs in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(ours, theirs)
        os.close(log)
        os.close(nothing)
        os.environ.update(request["env"])
        code = entry(request["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
