"""Llama (2, 3, 3.1, 3.2 …), Qwen2 and Qwen3: one shape that differs in biases, head norms and defaults."""

from dataclasses import dataclass
from typing import Any

from argosy.errors import InputError
from argosy.models.hf.family import Config, Weight, demand, differing, pairs, required
from argosy.recipe.model_table import ModelTable

_MLP = (("gate_proj", "gate"), ("up_proj", "up"), ("down_proj", "down"))


@dataclass(frozen=True)
class LlamaLike:
    """RMSNorm, rotary positions, SwiGLU, grouped-query attention.

    Attributes:
        biases: values of the recipe's `model.bias` that the family can have.
        max_positions, head_dim: what a config.json means that does not say them (None: hidden_size / heads).
    """

    architecture: str
    model_type: str
    biases: tuple[str, ...]
    qk_norm: bool
    max_positions: int
    head_dim: int | None = None
    prefix: str = "model."
    buffers: str = r".*rotary_emb\.inv_freq"

    def table(self, config: Config) -> dict[str, Any]:
        demand(
            config,
            {
                "hidden_act": ("silu",),
                "use_sliding_window": (False, None),
                "partial_rotary_factor": (1.0, None),
            },
        )
        if set(config.get("layer_types") or ()) - {"full_attention"}:
            raise InputError("layer_types has sliding attention; Argosy's attend to all before", where="config.json")
        layers, hidden_size, heads, ffn_size = required(
            config, "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"
        )
        return {
            "layers": layers,
            "hidden_size": hidden_size,
            "heads": heads,
            "kv_heads": config.get("num_key_value_heads") or heads,
            "head_dim": config.get("head_dim") or self.head_dim or hidden_size // heads,
            "ffn_size": ffn_size,
            "activation": "swiglu",
            "norm": "rmsnorm",
            "norm_eps": config.get("rms_norm_eps", 1e-6),
            "positions": "rope",
            "max_positions": config.get("max_position_embeddings", self.max_positions),
            **_rope(config),
            "qk_norm": self.qk_norm,
            "bias": self._bias(config),
            "tied_embeddings": config.get("tie_word_embeddings", False),
        }

    def config(self, table: ModelTable) -> dict[str, Any]:
        config: dict[str, Any] = {
            "model_type": self.model_type,
            "num_hidden_layers": table.layers,
            "hidden_size": table.hidden_size,
            "num_attention_heads": table.heads,
            "num_key_value_heads": table.kv_heads,
            "head_dim": table.head_dim,
            "intermediate_size": table.ffn_size,
            "hidden_act": "silu",
            "rms_norm_eps": table.norm_eps,
            "max_position_embeddings": table.max_positions,
            # The form of transformers 4, which 5 reads too; 4 would pass over the form of 5 and use 10,000.
            "rope_theta": table.rope_theta,
            "rope_scaling": None,
            "tie_word_embeddings": table.tied_embeddings,
        }
        if self.model_type != "qwen2":
            config["attention_bias"] = table.bias != "none"
        if self.model_type == "llama":
            config["mlp_bias"] = table.bias != "none"
        else:
            config["use_sliding_window"] = False
        if (scaling := table.rope_scaling) is not None:
            config["rope_scaling"] = {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_positions,
            }
        return config

    def objections(self, table: ModelTable) -> list[str]:
        return differing(
            table,
            {
                "activation": ("swiglu",),
                "norm": ("rmsnorm",),
                "positions": ("rope",),
                "qk_norm": (self.qk_norm,),
                "bias": self.biases,
            },
        )

    def weights(self, table: ModelTable) -> list[Weight]:
        attention = [(f"self_attn.{name}_proj", f"attention.{name}") for name in "qkv"]
        output = [("self_attn.o_proj", "attention.o")]
        mlp = [(f"mlp.{theirs}", f"mlp.{ours}") for theirs, ours in _MLP]
        norms = [("input_layernorm", "attention_norm"), ("post_attention_layernorm", "mlp_norm")]
        if self.qk_norm:
            norms += [(f"self_attn.{name}_norm", f"attention.{name}_norm") for name in "qk"]
        weight, bias = ("weight",), ("weight", "bias")
        found = [Weight("model.embed_tokens.weight", ("embedding.weight",))]
        for layer in range(table.layers):
            theirs, ours = f"model.layers.{layer}.", f"blocks.{layer}."
            found += pairs(theirs, ours, norms, weight)
            found += pairs(theirs, ours, attention, weight if table.bias == "none" else bias)
            found += pairs(theirs, ours, [*output, *mlp], bias if table.bias == "all" else weight)
        found.append(Weight("model.norm.weight", ("norm.weight",)))
        if not table.tied_embeddings:
            found.append(Weight("lm_head.weight", ("head.weight",)))
        return found

    def _bias(self, config: Config) -> str:
        if self.model_type == "qwen2":
            return "qkv"
        attention, mlp = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
        if attention != mlp or (attention and "all" not in self.biases):
            raise InputError(
                f"attention_bias is {attention} and mlp_bias {mlp}; Argosy's {self.architecture} has "
                f"{'both or none' if 'all' in self.biases else 'none'}",
                where="config.json",
            )
        return "all" if attention else "none"


def _rope(config: Config) -> dict[str, Any]:
    """Frequencies in the form of transformers 5 (`rope_parameters`) or 4 (`rope_theta`, `rope_scaling`)."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    table: dict[str, Any] = {"rope_theta": rope.get("rope_theta", config.get("rope_theta", 10_000.0))}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "llama3":
        table["rope_scaling"] = {
            "factor": rope["factor"],
            "low_freq_factor": rope["low_freq_factor"],
            "high_freq_factor": rope["high_freq_factor"],
            "original_positions": rope.get("original_max_position_embeddings", config["max_position_embeddings"]),
        }
    elif kind != "default":
        raise InputError(f"rope_type is {kind!r}; Argosy knows 'default' and 'llama3'", where="config.json")
    return table


LLAMA = LlamaLike("LlamaForCausalLM", "llama", biases=("none", "all"), qk_norm=False, max_positions=2048)
QWEN2 = LlamaLike("Qwen2ForCausalLM", "qwen2", biases=("qkv",), qk_norm=False, max_positions=32_768)
QWEN3 = LlamaLike("Qwen3ForCausalLM", "qwen3", biases=("none",), qk_norm=True, max_positions=32_768, head_dim=128)
