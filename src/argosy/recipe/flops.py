"""Exact parameter counts and FLOPs of each module, used by reports, planner and laws alike.

A matrix product of [m, k] and [k, n] is 2·m·k·n FLOP. Norms, activations, rotary positions and the softmax are not
counted, nor are embedding look-ups. Attention scores are counted over the full sequence, not only the causal half:
that is the convention of PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B: 6·N + 12·L·H·Q·T per token), so
MFU compares with published figures. Recomputation is not counted, which makes it MFU and not HFU.
"""

from argosy.recipe.model_table import ModelTable


def parameters(model: ModelTable, vocab_size: int) -> dict[str, int]:
    """Number of parameters of each module, summed over layers; names as in the decoder."""
    hidden, layers = model.hidden_size, model.layers
    head_dim, norm = _head_dim(model), hidden * (2 if model.norm == "layernorm" else 1)
    counts = {"embedding": vocab_size * hidden}
    if model.positions == "learned":
        counts["positions"] = model.max_positions * hidden
    for name, (inputs, outputs) in _matrices(model).items():
        biased = model.bias == "all" or (model.bias == "qkv" and name in ("attention.q", "attention.k", "attention.v"))
        counts[name] = layers * (inputs * outputs + biased * outputs)
    counts["block norms"] = layers * (2 * norm + 2 * head_dim * model.qk_norm)
    counts["norm"] = norm
    counts["head"] = 0 if model.tied_embeddings else vocab_size * hidden
    return counts


def parameter_count(model: ModelTable, vocab_size: int) -> int:
    """Number of parameters; a tied embedding counts once."""
    return sum(parameters(model, vocab_size).values())


def forward_flops(model: ModelTable, vocab_size: int, sequence_length: int) -> dict[str, int]:
    """Forward FLOP per token of each module, summed over layers, for sequences of `sequence_length` tokens."""
    flops = {name: 2 * model.layers * inputs * outputs for name, (inputs, outputs) in _matrices(model).items()}
    # scores and their weighted sum: each token meets sequence_length keys in each head, twice
    flops["attention.scores"] = 4 * model.layers * model.heads * _head_dim(model) * sequence_length
    flops["head"] = 2 * model.hidden_size * vocab_size
    return flops


def model_flops_per_token(model: ModelTable, vocab_size: int, sequence_length: int) -> int:
    """Forward and backward FLOP per trained token: three times the forward, as each product has two gradients."""
    return 3 * sum(forward_flops(model, vocab_size, sequence_length).values())


def _matrices(model: ModelTable) -> dict[str, tuple[int, int]]:
    """(inputs, outputs) of each linear layer of a block."""
    assert model.kv_heads is not None
    hidden, ffn, head_dim = model.hidden_size, model.ffn_size, _head_dim(model)
    queries, keys = model.heads * head_dim, model.kv_heads * head_dim
    gate = {"mlp.gate": (hidden, ffn)} if model.activation == "swiglu" else {}
    return {
        "attention.q": (hidden, queries),
        "attention.k": (hidden, keys),
        "attention.v": (hidden, keys),
        "attention.o": (queries, hidden),
        **gate,
        "mlp.up": (hidden, ffn),
        "mlp.down": (ffn, hidden),
    }


def _head_dim(model: ModelTable) -> int:
    assert model.head_dim is not None
    return model.head_dim
