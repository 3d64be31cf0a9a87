"""GPT-2: LayerNorm, learned positions, GELU, biases; q, k and v are one matrix, and matrices are [in, out]."""

from dataclasses import dataclass
from typing import Any

from argosy.models.hf.family import Config, Weight, demand, differing, pairs, required
from argosy.recipe.model_table import ModelTable


@dataclass(frozen=True)
class Gpt2:
    architecture: str = "GPT2LMHeadModel"
    prefix: str = "transformer."
    buffers: str = r".*\.attn\.(masked_)?bias"

    def table(self, config: Config) -> dict[str, Any]:
        demand(
            config,
            {
                "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
                "scale_attn_weights": (True,),
                "scale_attn_by_inverse_layer_idx": (False,),
                "add_cross_attention": (False,),
            },
        )
        layers, hidden_size, heads = required(config, "n_layer", "n_embd", "n_head")
        return {
            "layers": layers,
            "hidden_size": hidden_size,
            "heads": heads,
            "kv_heads": heads,
            "ffn_size": config.get("n_inner") or 4 * hidden_size,
            "activation": "gelu",
            "norm": "layernorm",
            "norm_eps": config.get("layer_norm_epsilon", 1e-5),
            "positions": "learned",
            "max_positions": config.get("n_positions", 1024),
            "bias": "all",
            "tied_embeddings": config.get("tie_word_embeddings", True),
        }

    def config(self, table: ModelTable) -> dict[str, Any]:
        return {
            "model_type": "gpt2",
            "n_layer": table.layers,
            "n_embd": table.hidden_size,
            "n_head": table.heads,
            "n_inner": table.ffn_size,
            "n_positions": table.max_positions,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": table.norm_eps,
            "tie_word_embeddings": table.tied_embeddings,
            # Argosy has no dropout; without these, training in transformers would begin to have some.
            "attn_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "resid_pdrop": 0.0,
        }

    def objections(self, table: ModelTable) -> list[str]:
        return differing(
            table,
            {
                "activation": ("gelu",),
                "norm": ("layernorm",),
                "positions": ("learned",),
                "qk_norm": (False,),
                "bias": ("all",),
                "kv_heads": (table.heads,),
                "head_dim": (table.hidden_size // table.heads,),
            },
        )

    def weights(self, table: ModelTable) -> list[Weight]:
        norms = [("ln_1", "attention_norm"), ("ln_2", "mlp_norm")]
        linear = [
            ("attn.c_attn", ("attention.q", "attention.k", "attention.v")),
            ("attn.c_proj", ("attention.o",)),
            ("mlp.c_fc", ("mlp.up",)),
            ("mlp.c_proj", ("mlp.down",)),
        ]
        found = [
            Weight("transformer.wte.weight", ("embedding.weight",)),
            Weight("transformer.wpe.weight", ("positions.weight",)),
        ]
        for layer in range(table.layers):
            theirs, ours = f"transformer.h.{layer}.", f"blocks.{layer}."
            found += pairs(theirs, ours, norms, ("weight", "bias"))
            for name, parts in linear:
                for suffix, transposed in (("weight", True), ("bias", False)):
                    names = tuple(f"{ours}{part}.{suffix}" for part in parts)
                    found.append(Weight(f"{theirs}{name}.{suffix}", names, transposed))
        found += pairs("transformer.", "", [("ln_f", "norm")], ("weight", "bias"))
        if not table.tied_embeddings:
            found.append(Weight("lm_head.weight", ("head.weight",)))
        return found


GPT2 = Gpt2()
