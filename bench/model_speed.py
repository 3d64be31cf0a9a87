"""Training steps of Argosy's decoder beside a plain PyTorch loop of the same model: tokens per second, one process.

    python bench/model_speed.py [--preset argosy-3m] [--threads 2] [--pairs 8] [--json]

A step is forward, loss, backward, clipping and AdamW. The two programs take turns, so that what else the machine does
hits both; the ratio is the median over the pairs. They start from equal weights, and their first losses are compared.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from argosy.models.build import build
from argosy.models.init import init_weights
from argosy.optim.build import build_optimizer
from argosy.optim.clip import global_norm
from argosy.optim.guard import apply_update
from argosy.recipe.schema import ModelTable, OptimizerTable

VOCAB = 4096
Step = Callable[[Tensor, Tensor], float]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class PlainBlock(nn.Module):
    def __init__(self, c: ModelTable):
        super().__init__()
        self.shape, self.eps = (-1, c.head_dim), c.norm_eps
        self.norms = nn.ParameterList(torch.ones(n) for n in (c.hidden_size, c.hidden_size, c.head_dim, c.head_dim))
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.q, self.k, self.v = (nn.Linear(c.hidden_size, n, bias=False) for n in (queries, keys, keys))
        self.o = nn.Linear(queries, c.hidden_size, bias=False)
        self.gate, self.up = (nn.Linear(c.hidden_size, c.ffn_size, bias=False) for _ in range(2))
        self.down = nn.Linear(c.ffn_size, c.hidden_size, bias=False)

    def norm(self, x: Tensor, i: int) -> Tensor:
        return F.rms_norm(x, self.norms[i].shape, self.norms[i].to(x.dtype), self.eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.norm(x, 0)
        q, k, v = (f(h).unflatten(-1, self.shape).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (
            t * cos + torch.cat((-t.chunk(2, -1)[1], t.chunk(2, -1)[0]), -1) * sin
            for t in (self.norm(q, 2), self.norm(k, 3))
        )
        q, k = q.to(v.dtype), k.to(v.dtype)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.size(1) != k.size(1))
        x = x + self.o(h.transpose(1, 2).flatten(2))
        h = self.norm(x, 1)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Plain(nn.Module):
    """What one writes by hand: the same model from PyTorch's own layers."""

    def __init__(self, c: ModelTable):
        super().__init__()
        self.c = c
        self.embedding = nn.Embedding(VOCAB, c.hidden_size)
        self.blocks = nn.ModuleList(PlainBlock(c) for _ in range(c.layers))
        self.norm = nn.Parameter(torch.ones(c.hidden_size))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        rates = self.c.rope_theta ** -(torch.arange(0, self.c.head_dim, 2) / self.c.head_dim)
        angles = torch.outer(torch.arange(tokens.size(1)), rates).repeat(1, 2)
        for block in self.blocks:
            x = block(x, angles.cos(), angles.sin())
        logits = F.linear(F.rms_norm(x, self.norm.shape, self.norm, self.c.norm_eps), self.embedding.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def plain_step(config: ModelTable, dtype: torch.dtype) -> Step:
    model = Plain(config)
    load_from(model, config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)

    def step(tokens: Tensor, targets: Tensor) -> float:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def load_from(model: Plain, config: ModelTable) -> None:
    """Gives the plain model the initial weights of Argosy's, which lists its parameters in another order."""
    ours = build(config, VOCAB, device="cpu")
    init_weights(ours, 0)
    with torch.no_grad():
        model.embedding.weight.copy_(ours.embedding.weight)
        for layer, block in enumerate(model.blocks):
            source = ours.blocks[str(layer)]
            for name in ("q", "k", "v", "o"):
                getattr(block, name).weight.copy_(getattr(source.attention, name).weight)
            for name in ("gate", "up", "down"):
                getattr(block, name).weight.copy_(getattr(source.mlp, name).weight)


def argosy_step(config: ModelTable, dtype: torch.dtype) -> Step:
    model = build(config, VOCAB, dtype, "cpu")
    init_weights(model, 0)
    optimizer = build_optimizer(model, OptimizerTable(learning_rate=1e-3))
    parameters = list(model.parameters())

    def step(tokens: Tensor, targets: Tensor) -> float:
        sums = model(tokens, targets)
        (sums.objective / targets.numel()).backward()
        apply_update(optimizer, parameters, global_norm(parameters), 1.0)
        return sums.loss_sum.item() / targets.numel()

    return step


def measure(config: ModelTable, dtype: torch.dtype, sequences: int, length: int, pairs: int) -> dict[str, float]:
    """Medians of tokens per second of both, their ratio by pairs, and the first losses."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(VOCAB, (sequences, length + 1), generator=generator)
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    steps = {"plain": plain_step(config, dtype), "argosy": argosy_step(config, dtype)}
    losses = {name: step(tokens, targets) for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for pair in range(pairs):
        for name in sorted(steps, reverse=pair % 2 == 0):
            start = time.perf_counter()
            steps[name](tokens, targets)
            times[name].append(time.perf_counter() - start)
    ratios = [p / a for p, a in zip(times["plain"], times["argosy"], strict=True)]
    rates = {f"{name}_tokens_per_s": tokens.numel() / statistics.median(t) for name, t in times.items()}
    spread = {"ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios)}
    return rates | spread | {f"{name}_first_loss": loss for name, loss in losses.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--preset", nargs="*", default=["argosy-3m"], choices=["argosy-0.5m", "argosy-3m", "argosy-25m"]
    )
    parser.add_argument("--precision", nargs="*", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for preset in options.preset:
        for precision in options.precision:
            dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
            figures = measure(ModelTable(preset=preset), dtype, options.sequences, options.length, options.pairs)
            rows.append({"preset": preset, "precision": precision, "threads": options.threads} | figures)
            if not options.json:
                print(
                    f"{preset:12} {precision} {options.threads} threads: plain {figures['plain_tokens_per_s']:7.0f} "
                    f"argosy {figures['argosy_tokens_per_s']:7.0f} tokens/s, ratio {figures['ratio']:.2f} "
                    f"({figures['ratio_low']:.2f} to {figures['ratio_high']:.2f}), first loss "
                    f"{figures['plain_first_loss']:.4f} and {figures['argosy_first_loss']:.4f}",
                    flush=True,
                )
    if options.json:
        print(json.dumps({"schema": "bench.model_speed.1", "rows": rows}))


if __name__ == "__main__":
    main()
