"""The decoder once more, in float64, from the formulas and for nothing but clarity: what the fast one must equal."""

import torch
from torch import Tensor

from argosy.recipe.model_table import ModelTable

SMALL = ModelTable(layers=2, hidden_size=24, heads=4, head_dim=8, kv_heads=2, ffn_size=40, max_positions=64)
SHAPES = {
    "llama": SMALL,
    "qwen": SMALL.model_copy(update={"qk_norm": True, "bias": "qkv", "tied_embeddings": True, "kv_heads": 4}),
    "gpt2": SMALL.model_copy(
        update={
            "norm": "layernorm",
            "activation": "gelu",
            "positions": "learned",
            "bias": "all",
            "tied_embeddings": True,
            "kv_heads": 4,
        }
    ),
    "one kv head": SMALL.model_copy(update={"kv_heads": 1, "bias": "all"}),
}
VOCAB = 61


def logits(config: ModelTable, p: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """float64 [B, S, V] from float64 parameters by name."""
    x = p["embedding.weight"][tokens]
    if config.positions == "learned":
        x = x + p["positions.weight"][: tokens.size(1)]
    for layer in range(config.layers):
        block = {n.removeprefix(f"blocks.{layer}."): v for n, v in p.items() if n.startswith(f"blocks.{layer}.")}
        x = x + _attention(config, block, _norm(config, block, "attention_norm", x))
        x = x + _mlp(config, block, _norm(config, block, "mlp_norm", x))
    x = _norm(config, p, "norm", x)
    return x @ p["embedding.weight" if config.tied_embeddings else "head.weight"].T


def losses(scores: Tensor, targets: Tensor) -> Tensor:
    """Nats of each token whose target is not -100."""
    kept = targets != -100
    return torch.logsumexp(scores, -1)[kept] - scores[kept].gather(-1, targets[kept][:, None])[:, 0]


def _linear(p: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    out = x @ p[f"{name}.weight"].T
    return out + p[f"{name}.bias"] if f"{name}.bias" in p else out


def _norm(config: ModelTable, p: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    if config.norm == "rmsnorm":
        return _rms(x, p[f"{name}.weight"], config.norm_eps)
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + config.norm_eps).sqrt()
    return centred / scale * p[f"{name}.weight"] + p[f"{name}.bias"]


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def _mlp(config: ModelTable, p: dict[str, Tensor], x: Tensor) -> Tensor:
    up = _linear(p, "mlp.up", x)
    if config.activation == "swiglu":
        gate = _linear(p, "mlp.gate", x)
        return _linear(p, "mlp.down", gate * torch.sigmoid(gate) * up)
    inner = (2 / torch.pi) ** 0.5 * (up + 0.044715 * up**3)
    return _linear(p, "mlp.down", up * (1 + torch.tanh(inner)) / 2)


def _attention(config: ModelTable, p: dict[str, Tensor], x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    q, k, v = (_linear(p, f"attention.{n}", x).view(batch, length, -1, config.head_dim) for n in "qkv")
    if config.qk_norm:
        q = _rms(q, p["attention.q_norm.weight"], config.norm_eps)
        k = _rms(k, p["attention.k_norm.weight"], config.norm_eps)
    if config.positions == "rope":
        q, k = _turn(config, q), _turn(config, k)
    heads = []
    for head in range(config.heads):
        shared = head // (config.heads // config.kv_heads)
        scores = torch.einsum("bqd,bkd->bqk", q[:, :, head], k[:, :, shared]) / config.head_dim**0.5
        heads.append(torch.softmax(scores.masked_fill(future, -torch.inf), -1) @ v[:, :, shared])
    return _linear(p, "attention.o", torch.cat(heads, -1))


def _turn(config: ModelTable, x: Tensor) -> Tensor:
    """Rotary positions as products of complex numbers."""
    half = config.head_dim // 2
    angles = torch.arange(x.size(1))[:, None] * config.rope_theta ** -(torch.arange(half, dtype=torch.float64) / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.cat((turned.real, turned.imag), -1)
