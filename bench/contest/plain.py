"""What one writes by hand: a Llama from PyTorch's own layers and the shortest loop that trains it."""

import numpy as np
import torch
import torch.nn.functional as F
from referee import Referee, read_task
from safetensors.torch import load_file
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        width, keys = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
        self.head_dim, self.grouped = c["head_dim"], c["heads"] != c["kv_heads"]
        self.input_layernorm = nn.RMSNorm(c["hidden_size"], c["norm_eps"])
        self.post_attention_layernorm = nn.RMSNorm(c["hidden_size"], c["norm_eps"])
        sizes = {"q_proj": width, "k_proj": keys, "v_proj": keys}
        self.self_attn = nn.ModuleDict({k: nn.Linear(c["hidden_size"], n, bias=False) for k, n in sizes.items()})
        self.self_attn["o_proj"] = nn.Linear(width, c["hidden_size"], bias=False)
        self.mlp = nn.ModuleDict(
            {name: nn.Linear(c["hidden_size"], c["ffn_size"], bias=False) for name in ("gate_proj", "up_proj")}
        )
        self.mlp["down_proj"] = nn.Linear(c["ffn_size"], c["hidden_size"], bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h, attention, mlp = self.input_layernorm(x), self.self_attn, self.mlp
        q, k, v = (
            attention[name](h).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        q, k = ((t * cos + torch.cat((-t.chunk(2, -1)[1], t.chunk(2, -1)[0]), -1) * sin).to(v.dtype) for t in (q, k))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        x = x + attention["o_proj"](h.transpose(1, 2).flatten(2))
        h = self.post_attention_layernorm(x)
        return x + mlp["down_proj"](F.silu(mlp["gate_proj"](h)) * mlp["up_proj"](h))


class Llama(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"], c["norm_eps"])
        rates = c["rope_theta"] ** -(torch.arange(0, c["head_dim"], 2) / c["head_dim"])
        angles = torch.outer(torch.arange(c["length"]), rates).repeat(1, 2)
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        for block in self.layers:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embed_tokens.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def main() -> None:
    referee, task = Referee(), read_task()
    model = Llama(task["model"] | {"length": task["length"]})
    state = load_file(task["folder"] / "hf" / "model.safetensors")
    model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in state.items()})
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": task["weight_decay"]},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=task["learning_rate"], betas=task["betas"], eps=task["eps"], fused=True)
    referee.wait()
    for windows in np.load(task["folder"] / "batches.npy", mmap_mode="r"):
        batch = torch.from_numpy(windows.astype(np.int64))
        with torch.autocast("cpu", torch.bfloat16, enabled=task["precision"] == "bf16"):
            loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), task["clip_norm"])
        optimizer.step()
        optimizer.zero_grad()
        referee.step_done(loss.detach())


main()
