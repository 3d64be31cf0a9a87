"""Parameter counts against published totals, FLOPs against what torch counts in the real model."""

from collections import defaultdict

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from argosy.models.build import build
from argosy.recipe.flops import forward_flops, model_flops_per_token, parameter_count, parameters
from argosy.recipe.model_table import ModelTable
from argosy.recipe.presets import PRESETS

# Sums over the weight files that the makers publish; a tied output layer counts once.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
}
BATCH, LENGTH, VOCAB = 2, 16, 100
SHAPES = [
    ModelTable(layers=2, hidden_size=32, heads=4, kv_heads=2, ffn_size=80, qk_norm=True, bias="qkv"),
    ModelTable(layers=3, hidden_size=24, heads=2, head_dim=16, ffn_size=50, activation="gelu", norm="layernorm"),
    ModelTable(
        layers=1,
        hidden_size=32,
        heads=4,
        ffn_size=64,
        positions="learned",
        max_positions=40,
        bias="all",
        norm="layernorm",
    ),
    ModelTable(layers=2, hidden_size=32, heads=4, ffn_size=64, tied_embeddings=True),
]


@pytest.mark.parametrize("preset", PUBLISHED)
def test_published_totals(preset: str) -> None:
    model = ModelTable(preset=preset)
    assert model.vocab_size is not None
    assert parameter_count(model, model.vocab_size) == PUBLISHED[preset]


def test_every_published_family_is_checked() -> None:
    assert {name for name in PRESETS if not name.startswith("argosy-")} == PUBLISHED.keys()


@pytest.mark.parametrize("model", [*SHAPES, *(ModelTable(preset=name) for name in ("argosy-0.5m", "llama3.1-405b"))])
def test_counts_equal_the_decoder(model: ModelTable) -> None:
    decoder = build(model, VOCAB)  # on meta: no memory
    assert parameter_count(model, VOCAB) == sum(p.numel() for p in decoder.parameters())
    assert parameters(model, VOCAB)["embedding"] == decoder.embedding.weight.numel()


def counted(model: ModelTable, *, backward: bool) -> FlopCounterMode:
    """What torch counts in the real model, on meta (no numbers, the plain kernels), for BATCH sequences of LENGTH."""
    decoder = build(model, VOCAB)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = decoder(torch.zeros(BATCH, LENGTH, dtype=torch.int64, device="meta"))
        if backward:
            logits.sum().backward()
    return counter


@pytest.mark.parametrize("model", SHAPES)
def test_flops_of_each_module_equal_those_that_torch_counts(model: ModelTable) -> None:
    counter = counted(model, backward=False)
    found: dict[str, int] = defaultdict(int)
    for path, counts in counter.get_flop_counts().items():
        module = path.removeprefix("Decoder.blocks.").partition(".")[2]
        found[module] += sum(counts.values())
    found["attention.scores"] = found["attention"] - sum(found[f"attention.{name}"] for name in "qkvo")
    found["head"] = counter.get_total_flops() - found["attention"] - found["mlp"]
    expected = {name: BATCH * LENGTH * flops for name, flops in forward_flops(model, VOCAB, LENGTH).items()}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("model", SHAPES)
def test_training_is_three_forwards(model: ModelTable) -> None:
    total = counted(model, backward=True).get_total_flops()
    assert total == BATCH * LENGTH * model_flops_per_token(model, VOCAB, LENGTH)
