"""The shape of the decoder."""

import difflib
from typing import Any, Literal

from pydantic import model_validator

from argosy.recipe.field import Table, knob
from argosy.recipe.presets import PRESETS


class RopeScaling(Table):
    """Llama-3 frequency scaling: low frequencies are divided by `factor`, high ones kept, between them a ramp."""

    factor: float = knob(8.0, "learn", "divisor of the low frequencies", ge=1)
    low_freq_factor: float = knob(1.0, "learn", "wavelengths above original/low are fully scaled", gt=0)
    high_freq_factor: float = knob(4.0, "learn", "wavelengths below original/high are kept", gt=0)
    original_positions: int = knob(8192, "learn", "context length before scaling", unit="tokens", gt=0)


class ModelTable(Table):
    preset: str | None = knob(None, "books", f"starting point of the fields below: {', '.join(PRESETS)}")
    vocab_size: int | None = knob(
        None, "learn", "rows of the embedding; empty takes the tokenizer's", unit="tokens", gt=1
    )
    layers: int = knob(4, "learn", "number of decoder blocks", ge=1)
    hidden_size: int = knob(128, "learn", "width of the residual stream", ge=1)
    heads: int = knob(4, "learn", "query heads", ge=1)
    kv_heads: int | None = knob(None, "learn", "key/value heads (grouped-query attention); empty means `heads`", ge=1)
    head_dim: int | None = knob(None, "learn", "width of a head; empty means hidden_size / heads", ge=2)
    ffn_size: int = knob(384, "learn", "inner width of the MLP", ge=1)
    activation: Literal["swiglu", "gelu"] = knob("swiglu", "learn", "MLP: gated SiLU, or tanh-approximated GELU")
    norm: Literal["rmsnorm", "layernorm"] = knob("rmsnorm", "learn", "normalisation")
    norm_eps: float = knob(1e-5, "learn", "added to the variance", gt=0)
    positions: Literal["rope", "learned"] = knob("rope", "learn", "rotary or learned absolute positions")
    max_positions: int = knob(8192, "learn", "longest sequence", unit="tokens", ge=1)
    rope_theta: float = knob(10_000.0, "learn", "base of the rotary frequencies", gt=1)
    rope_scaling: RopeScaling | None = knob(None, "learn", "Llama-3 frequency scaling")
    qk_norm: bool = knob(False, "learn", "RMSNorm on each query and key head")
    bias: Literal["none", "qkv", "all"] = knob("none", "learn", "which linear layers have a bias")
    tied_embeddings: bool = knob(False, "learn", "output layer shares the embedding")
    init_std: float = knob(0.02, "learn", "standard deviation of initial weights", gt=0)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("preset") is not None:
            if values["preset"] not in PRESETS:
                near = difflib.get_close_matches(str(values["preset"]), PRESETS, n=1)
                raise ValueError(
                    f"unknown preset {values['preset']!r} → "
                    + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(PRESETS)}")
                )
            return PRESETS[values["preset"]] | values
        return values

    @model_validator(mode="after")
    def _shapes_fit(self) -> "ModelTable":
        if self.head_dim is None:
            if self.hidden_size % self.heads:
                raise ValueError(
                    f"hidden_size {self.hidden_size} is not divisible by heads {self.heads}; "
                    f"heads that divide it: {_divisors(self.hidden_size)}; or set head_dim"
                )
            object.__setattr__(self, "head_dim", self.hidden_size // self.heads)
        if self.kv_heads is None:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.heads % self.kv_heads:  # type: ignore[operator]
            raise ValueError(
                f"heads {self.heads} is not divisible by kv_heads {self.kv_heads}; "
                f"kv_heads that divide it: {_divisors(self.heads)}"
            )
        if self.positions == "rope" and self.head_dim % 2:  # type: ignore[operator]
            raise ValueError(f"rotary positions need an even head_dim, not {self.head_dim}")
        return self


def _divisors(number: int) -> str:
    return ", ".join(str(d) for d in range(1, number + 1) if number % d == 0)
