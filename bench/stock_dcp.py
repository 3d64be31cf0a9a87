"""The peer of bench/recovery.py: what a careful user writes with stock torch. FSDP2, AdamW, a DCP checkpoint each few
steps under a temporary name with a rename, and a start from the newest one. Started by ``torchrun --max-restarts``."""

import json
import os
import re
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

EVERY = 10


def main() -> None:
    folder, steps, width, layers = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)]
    model = nn.Sequential(*blocks)
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    done = _load(folder, model, optimizer)
    log = (folder / f"log-{rank}.jsonl").open("a", buffering=1)
    log.write(json.dumps({"pid": os.getpid(), "from": done}) + "\n")
    while done < steps:
        data = torch.Generator().manual_seed(done * 1000 + rank)
        model(torch.randn(64, width, generator=data)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        log.write(json.dumps({"step": done, "t": time.monotonic_ns()}) + "\n")
        if done % EVERY == 0:
            _save(folder, done, model, optimizer, rank)
    dist.destroy_process_group()


def _save(folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    weights, moments = get_state_dict(model, optimizer)
    draft = folder / f"draft-{step}"
    dcp.save({"model": weights, "optimizer": moments}, storage_writer=dcp.FileSystemWriter(draft))
    dist.barrier()
    if rank == 0:
        draft.rename(folder / f"step-{step}")
    dist.barrier()


def _load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    steps = [int(m[1]) for entry in folder.iterdir() if (m := re.fullmatch(r"step-(\d+)", entry.name))]
    if not steps:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder / f"step-{max(steps)}"))
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return max(steps)


if __name__ == "__main__":
    main()
