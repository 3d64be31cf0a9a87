import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.models.rope import frequencies, rotate, rotation_table, scaled
from argosy.recipe.model_table import ModelTable, RopeScaling

CONFIG = ModelTable(hidden_size=64, heads=2, head_dim=32, max_positions=4096)
CPU = torch.device("cpu")


@settings(max_examples=30)
@given(st.integers(0, 900), st.integers(0, 900), st.integers(1, 100))
def test_scores_depend_on_the_distance_only(i, j, shift):
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 32)
    cos, sin = rotation_table(CONFIG, 1001, torch.float32, CPU)

    def score(at_q, at_k):
        turned = (rotate(x, cos[at : at + 1], sin[at : at + 1]) for x, at in ((q, at_q), (k, at_k)))
        return torch.dot(*(x.flatten() for x in turned))

    torch.testing.assert_close(score(i, j), score(i + shift, j + shift), rtol=0, atol=2e-3)


def test_rotation_keeps_length_and_leaves_position_0():
    x = torch.randn(2, 50, 3, 32)
    turned = rotate(x, *rotation_table(CONFIG, 50, torch.float32, CPU))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, 0], x[:, 0])
    assert (turned[:, 1:] != x[:, 1:]).any(-1).all()


def test_frequencies_fall_from_1_to_almost_1_over_theta():
    f = frequencies(CONFIG)
    assert f[0] == 1
    assert math.isclose(f[-1], 10_000 ** -(30 / 32), rel_tol=1e-5)


def published_scaling(frequency: float, scaling: RopeScaling) -> float:
    """The three cases of the Llama 3.1 reference model, by wavelength."""
    wavelength = 2 * math.pi / frequency
    longest = scaling.original_positions / scaling.low_freq_factor
    shortest = scaling.original_positions / scaling.high_freq_factor
    if wavelength < shortest:
        return frequency
    if wavelength > longest:
        return frequency / scaling.factor
    smooth = (scaling.original_positions / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency


def test_llama3_scaling_is_the_published_one():
    for name in ("llama3.1-8b", "llama3.2-1b"):
        config = ModelTable(preset=name)
        plain = frequencies(config.model_copy(update={"rope_scaling": None}))
        expected = torch.tensor([published_scaling(f, config.rope_scaling) for f in plain.tolist()])
        torch.testing.assert_close(frequencies(config), expected, rtol=1e-5, atol=0)
        kept, divided = expected == plain, torch.isclose(expected * config.rope_scaling.factor, plain)
        assert kept.any()
        assert divided.any()
        assert (~kept & ~divided).any(), "all three cases occur"


def test_scaling_without_a_ramp_is_a_step():
    sharp = RopeScaling(factor=4, low_freq_factor=2, high_freq_factor=2, original_positions=100)
    turns = torch.tensor([1.9, 2.1])
    f = turns * 2 * math.pi / 100
    torch.testing.assert_close(scaled(f, sharp), f / torch.tensor([4, 1]))
