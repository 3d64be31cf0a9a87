"""Model shapes by name; facts from the published configurations of each family."""

from typing import Any

_LLAMA3 = {
    "vocab_size": 128_256,
    "activation": "swiglu",
    "norm": "rmsnorm",
    "norm_eps": 1e-5,
    "positions": "rope",
    "rope_theta": 500_000.0,
    "max_positions": 8192,
    "bias": "none",
    "head_dim": 128,
    "kv_heads": 8,
}
_LLAMA31_SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_positions": 8192}
_LLAMA31 = _LLAMA3 | {"max_positions": 131_072, "rope_scaling": _LLAMA31_SCALING}
_QWEN3 = {
    "vocab_size": 151_936,
    "activation": "swiglu",
    "norm": "rmsnorm",
    "norm_eps": 1e-6,
    "positions": "rope",
    "rope_theta": 1_000_000.0,
    "max_positions": 40_960,
    "bias": "none",
    "head_dim": 128,
    "kv_heads": 8,
    "qk_norm": True,
}
_GPT2 = {
    "vocab_size": 50_257,
    "activation": "gelu",
    "norm": "layernorm",
    "norm_eps": 1e-5,
    "positions": "learned",
    "max_positions": 1024,
    "bias": "all",
    "tied_embeddings": True,
}
_SMALL = {"positions": "rope", "norm": "rmsnorm", "activation": "swiglu", "qk_norm": True, "tied_embeddings": True}


def _shape(layers: int, hidden_size: int, heads: int, ffn_size: int, **rest: Any) -> dict[str, Any]:
    return {"layers": layers, "hidden_size": hidden_size, "heads": heads, "ffn_size": ffn_size} | rest


PRESETS: dict[str, dict[str, Any]] = {
    "argosy-0.5m": _SMALL | _shape(4, 96, 3, 256),
    "argosy-3m": _SMALL | _shape(6, 192, 3, 512),
    "argosy-25m": _SMALL | _shape(8, 512, 8, 1408, kv_heads=4),
    "gpt2": _GPT2 | _shape(12, 768, 12, 3072),
    "gpt2-medium": _GPT2 | _shape(24, 1024, 16, 4096),
    "gpt2-large": _GPT2 | _shape(36, 1280, 20, 5120),
    "gpt2-xl": _GPT2 | _shape(48, 1600, 25, 6400),
    "qwen3-0.6b": _QWEN3 | _shape(28, 1024, 16, 3072, tied_embeddings=True),
    "qwen3-1.7b": _QWEN3 | _shape(28, 2048, 16, 6144, tied_embeddings=True),
    "qwen3-4b": _QWEN3 | _shape(36, 2560, 32, 9728, tied_embeddings=True),
    "qwen3-8b": _QWEN3 | _shape(36, 4096, 32, 12_288),
    "qwen3-14b": _QWEN3 | _shape(40, 5120, 40, 17_408),
    "qwen3-32b": _QWEN3 | _shape(64, 5120, 64, 25_600),
    "llama3.2-1b": _LLAMA31
    | _shape(16, 2048, 32, 8192, head_dim=64, tied_embeddings=True)
    | {"rope_scaling": _LLAMA31_SCALING | {"factor": 32.0}},
    "llama3.2-3b": _LLAMA31
    | _shape(28, 3072, 24, 8192, tied_embeddings=True)
    | {"rope_scaling": _LLAMA31_SCALING | {"factor": 32.0}},
    "llama3-8b": _LLAMA3 | _shape(32, 4096, 32, 14_336),
    "llama3-70b": _LLAMA3 | _shape(80, 8192, 64, 28_672),
    "llama3.1-8b": _LLAMA31 | _shape(32, 4096, 32, 14_336),
    "llama3.1-70b": _LLAMA31 | _shape(80, 8192, 64, 28_672),
    "llama3.1-405b": _LLAMA31 | _shape(126, 16_384, 128, 53_248),
}
