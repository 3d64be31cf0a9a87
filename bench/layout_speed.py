"""Steps of FSDP and of tensor parallelism on two ranks, beside the shortest loops that do the same collectives by hand.

    OMP_NUM_THREADS=1 python bench/layout_speed.py [--pairs 30] [--json FILE]

Both run in the same two processes on the same data and take turns; the ratio is hand-written time ÷ ours, so above 1
is faster than by hand.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from argosy.data.batch import Batch
from argosy.journal.recorder import NULL
from argosy.layout.layout import Layout
from argosy.layout.work import Work
from argosy.optim.build import build_optimizer
from argosy.parallel.control import sum_over_ranks
from argosy.parallel.mesh import build_mesh
from argosy.parallel.translate import translate
from argosy.recipe.model_table import ModelTable
from argosy.recipe.schema import LayoutTable, OptimizerTable, PrecisionTable
from argosy.training.phases import Phases
from argosy.training.step import train_step
from ranks import run_ranks

VOCAB, LENGTH, SEQUENCES = 4096, 256, 8
SHAPE = {"layers": 6, "hidden_size": 256, "heads": 4, "kv_heads": 4, "ffn_size": 768, "tied_embeddings": False}
CPU = torch.device("cpu")
ADAMW = OptimizerTable(kind="adamw", learning_rate=1e-3)


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.new_empty(2 * x.size(0), *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous())
        return torch.cat(out.chunk(2), 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        part = torch.empty_like(grads[0][:, : grads[0].size(1) // 2])
        dist.reduce_scatter_tensor(part, torch.cat(grads[0].chunk(2, 1)))
        return part


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        part = torch.empty_like(x[:, : x.size(1) // 2])
        dist.reduce_scatter_tensor(part, torch.cat(x.chunk(2, 1)))
        return part

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        out = grads[0].new_empty(2 * grads[0].size(0), *grads[0].shape[1:])
        dist.all_gather_into_tensor(out, grads[0].contiguous())
        return torch.cat(out.chunk(2), 1)


class DividedLoss(torch.autograd.Function):
    """Summed cross-entropy of logits [T, V / 2], whose vocabulary is divided."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        row = targets - dist.get_rank() * logits.size(1)
        mine = (row >= 0) & (row < logits.size(1))
        row = row.where(mine, 0)[:, None]
        top = logits.amax(1)
        told = torch.stack((top, (logits - top[:, None]).exp().sum(1), logits.gather(1, row)[:, 0] * mine))
        every = told.new_empty(6, len(targets))
        dist.all_gather_into_tensor(every, told)
        every = every.view(2, 3, -1)
        partition = torch.logsumexp(every[:, 0] + every[:, 1].log(), 0)
        ctx.save_for_backward((logits - partition[:, None]).exp().scatter_add(1, row, -mine[:, None].float()))
        return (partition - every[:, 2].sum(0)).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.saved_tensors[0] * grads[0], None


class Block(nn.Module):
    def __init__(self, d: int, f: int, ranks: int):
        super().__init__()
        self.divided = ranks > 1
        self.n1, self.n2 = nn.RMSNorm(d, 1e-5), nn.RMSNorm(d, 1e-5)
        self.q, self.k, self.v = (nn.Linear(d, d // ranks, bias=False) for _ in range(3))
        self.o = nn.Linear(d // ranks, d, bias=False)
        self.gate, self.up = nn.Linear(d, f // ranks, bias=False), nn.Linear(d, f // ranks, bias=False)
        self.down = nn.Linear(f // ranks, d, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        gather, scatter = (Gather.apply, Scatter.apply) if self.divided else (lambda x: x, lambda x: x)
        h = gather(self.n1(x))
        q, k, v = (m(h).unflatten(-1, (-1, 64)).transpose(1, 2) for m in (self.q, self.k, self.v))
        q, k = (t * cos + torch.cat((-t.chunk(2, -1)[1], t.chunk(2, -1)[0]), -1) * sin for t in (q, k))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + scatter(self.o(h))
        h = gather(self.n2(x))
        return x + scatter(self.down(F.silu(self.gate(h)) * self.up(h)))


class ByHand(nn.Module):
    def __init__(self, ranks: int):
        super().__init__()
        d, self.divided = SHAPE["hidden_size"], ranks > 1
        self.embedding = nn.Embedding(VOCAB // ranks, d)
        self.blocks = nn.ModuleList(Block(d, SHAPE["ffn_size"], ranks) for _ in range(SHAPE["layers"]))
        self.norm = nn.RMSNorm(d, 1e-5)
        self.head = nn.Linear(d, VOCAB // ranks, bias=False)
        angles = torch.outer(torch.arange(LENGTH), 10_000 ** -(torch.arange(0, 64, 2) / 64)).repeat(1, 2)
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        if self.divided:
            row = tokens - dist.get_rank() * self.embedding.num_embeddings
            mine = (row >= 0) & (row < self.embedding.num_embeddings)
            x = Scatter.apply(self.embedding(row.where(mine, 0)) * mine[..., None])
        else:
            x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        x = self.norm(x)
        if self.divided:
            return DividedLoss.apply(self.head(Gather.apply(x)).flatten(0, 1), targets.flatten())
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten(), reduction="sum")


def hand_step(axis: str) -> Any:
    torch.manual_seed(0)
    model = ByHand(2 if axis == "tp" else 1)
    if axis == "fsdp":
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
        for module in (*model.blocks, model):
            fully_shard(module, mesh=mesh, reshard_after_forward=module is not model)
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    whole = [p for name, p in model.named_parameters() if "n1" in name or "n2" in name or "norm" in name]

    def step(batch: Batch) -> None:
        (model(batch.tokens, batch.targets) / (SEQUENCES * LENGTH)).backward()
        if axis == "tp":
            flat = torch.cat([p.grad.flatten() for p in whole])
            dist.all_reduce(flat)
            for p, g in zip(whole, flat.split([p.numel() for p in whole]), strict=True):
                p.grad.copy_(g)
        squares = [g.to_local() if hasattr(g, "to_local") else g for g in (p.grad for p in model.parameters())]
        norm = torch.stack(torch._foreach_norm(squares)).square().sum()
        dist.all_reduce(norm)  # counts whole weights twice under tensor parallelism: the time is what matters here
        torch._foreach_mul_(squares, (1.0 / norm.sqrt()).clamp(max=1.0))
        optimizer.step()
        optimizer.zero_grad()

    return step


def our_step(axis: str) -> Any:
    layout = Layout.from_recipe(LayoutTable(**{"fsdp": 1, axis: 2}), 2)
    work = Work(ModelTable(**SHAPE), VOCAB, layout, SEQUENCES, LENGTH)
    program = translate(work, build_mesh(layout, "cpu"), PrecisionTable(compute="fp32"), seed=0, device=CPU)
    optimizer = build_optimizer(program.named_parameters(), ADAMW)

    def step(batch: Batch) -> None:
        train_step(
            program, optimizer, [batch], step=0, global_loss_tokens=SEQUENCES * LENGTH, learning_rate=1e-3,
            clip_norm=1.0, z_loss=0.0, device=CPU, phases=Phases(NULL),
            total=lambda values: sum_over_ranks(values, dist.group.WORLD),
        )  # fmt: skip

    return step


def contest(axis: str, pairs: int) -> list[tuple[float, float]]:
    """(seconds of ours, of the other) for each pair of steps, the first one changing."""
    sequences = SEQUENCES if axis == "tp" else SEQUENCES // 2
    stream = torch.randint(VOCAB, (sequences, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    batch = Batch(stream[:, :-1], stream[:, 1:], torch.zeros(sequences), loss_tokens=sequences * LENGTH)
    steps = our_step(axis), hand_step(axis)
    times: list[tuple[float, float]] = []
    for pair in range(-3, pairs):
        took = [0.0, 0.0]
        for which in (0, 1) if pair % 2 else (1, 0):
            dist.barrier()
            start = time.perf_counter()
            steps[which](batch)
            dist.barrier()
            took[which] = time.perf_counter() - start
        if pair >= 0:
            times.append((took[0], took[1]))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = {}
    for axis in ("fsdp", "tp"):
        times = run_ranks(2, contest, axis, asked.pairs, timeout_s=230)[0]
        ratios = sorted(theirs / ours for ours, theirs in times)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        ours_s = statistics.median(ours for ours, _ in times)
        found[axis] = {"ratio": statistics.median(ratios), "quartiles": [low, high], "ours_s": ours_s}
        print(f"{axis}=2: {found[axis]['ratio']:.3f} × (quartiles {low:.3f} to {high:.3f}), ours {1e3 * ours_s:.0f} ms")
    if asked.json:
        meta = {"pairs": asked.pairs, "machine": platform.machine(), "torch": torch.__version__}
        asked.json.write_text(json.dumps({**meta, "layouts": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
