import pytest
import reference_decoder as reference
import torch
from reference_decoder import SHAPES, SMALL, VOCAB
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from argosy.models.build import build
from argosy.models.init import init_weights
from argosy.recipe.flops import parameter_count
from argosy.recipe.model_table import ModelTable
from argosy.recipe.presets import PRESETS
from ranks import run_ranks


def make(config, dtype=torch.float32, device="cpu"):
    """A decoder whose vectors too have gradients worth comparing."""
    model = build(config, VOCAB, dtype)
    model.to_empty(device=device)
    init_weights(model, 7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.linspace(-0.3, 0.4, len(parameter)))
            else:
                parameter.mul_(5)
    return model


def batch(sequences=3, length=19):
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(VOCAB, (sequences, length + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    targets[0, :4] = targets[2, -1] = -100
    return tokens[:, :-1].contiguous(), targets


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_close_by_tensor(actual, expected, share):
    """Each tensor's largest error is at most `share` of the tensor's largest element.

    A key bias moves all scores of a query alike where there is no rotation: its gradient is nothing but rounding.
    """
    assert actual.keys() == expected.keys()
    least = 1e-3 * max(value.abs().max() for value in expected.values())
    for name in expected:
        error = (actual[name].double() - expected[name]).abs().max() / max(least, expected[name].abs().max())
        assert error <= share, f"{name}: {error:.1e}"


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_loss_and_gradients_equal_the_formulas(shape):
    config, model, (tokens, targets) = SHAPES[shape], make(SHAPES[shape]), batch()
    p = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    expected = reference.logits(config, p, tokens)
    loss = reference.losses(expected, targets).sum()
    loss.backward()
    sums = model(tokens, targets)
    sums.objective.backward()
    torch.testing.assert_close(model(tokens).double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(sums.loss_sum.double(), loss, rtol=1e-6, atol=0)
    assert_close_by_tensor(gradients(model), {name: value.grad for name, value in p.items()}, 2e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_bf16_is_near_the_formulas(shape):
    config, model, (tokens, targets) = SHAPES[shape], make(SHAPES[shape], torch.bfloat16), batch()
    p = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    reference.losses(reference.logits(config, p, tokens), targets).sum().backward()
    model(tokens, targets).objective.backward()
    assert_close_by_tensor(gradients(model), {name: value.grad for name, value in p.items()}, 0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_token_sees_a_later_one(shape, dtype):
    model, (tokens, _) = make(SHAPES[shape], dtype), batch(length=150 if SHAPES[shape].positions == "rope" else 60)
    changed = tokens.clone()
    changed[:, 41] = (changed[:, 41] + 1) % VOCAB
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(after[:, :41], before[:, :41], rtol=0, atol=1e-5)
    assert (after[:, 41:] != before[:, 41:]).any(-1).all(), "every later token sees it"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_heads_equal_repeated_ones(dtype):
    grouped = make(SMALL, dtype)
    repeated = make(SMALL.model_copy(update={"kv_heads": 4}), dtype)
    state = grouped.state_dict()
    for name, value in state.items():
        if ".k." in name or ".v." in name:
            state[name] = value.unflatten(0, (2, 8)).repeat_interleave(2, 0).flatten(0, 1)
    repeated.load_state_dict(state)
    tokens, _ = batch()
    torch.testing.assert_close(grouped(tokens), repeated(tokens), rtol=0, atol=1e-5 if dtype == torch.float32 else 0.05)


@pytest.mark.parametrize("shape", SHAPES)
def test_parameters_cast_beforehand_give_equal_bits(shape):
    """FSDP2 hands the blocks bf16 parameters; one process casts fp32 ones where they are used."""
    config, (tokens, targets) = SHAPES[shape], batch()
    master, cast = make(config, torch.bfloat16), make(config, torch.bfloat16).to(torch.bfloat16)
    for model in (master, cast):
        model(tokens, targets, z_loss=1e-3).objective.backward()
    assert torch.equal(master(tokens), cast(tokens))
    for (name, a), b in zip(gradients(master).items(), gradients(cast).values(), strict=True):
        assert torch.equal(a.bfloat16(), b), name


def sharded_gradients(shape, compute, reshard):
    """Gradients of a model sharded block by block over all ranks, from meta, each rank with its own sequences."""
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    mesh = torch.distributed.init_device_mesh("cpu", (world,))
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32)
    model = build(SHAPES[shape], VOCAB, compute)
    for module in (*model.blocks.values(), model):
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    model.to_empty(device="cpu")
    init_weights(model, 7)
    tokens, targets = batch(sequences=2 * world)
    model(tokens[rank::world], targets[rank::world]).objective.backward()
    return {name: parameter.grad.full_tensor() for name, parameter in model.named_parameters()}


@pytest.mark.dist
@pytest.mark.parametrize(("compute", "share"), [(torch.float32, 2e-6), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize(("shape", "reshard"), [("llama", True), ("qwen", False)])
def test_two_sharded_ranks_give_the_gradients_of_one_process(shape, compute, share, reshard):
    expected = build(SHAPES[shape], VOCAB, compute, "cpu")
    init_weights(expected, 7)
    expected(*batch(sequences=4)).objective.backward()
    for actual in run_ranks(2, sharded_gradients, shape, compute, reshard):
        assert_close_by_tensor(actual, gradients(expected), share)


@pytest.mark.parametrize("shape", SHAPES)
def test_compiled_blocks_give_the_same_gradients(shape):
    tokens, targets = batch()
    plain, compiled = make(SHAPES[shape]), make(SHAPES[shape])
    for name, block in compiled.blocks.items():
        # The tracer without a code generator: what may break is the trace, and it needs no C++ compiler.
        compiled.blocks[name] = torch.compile(block, backend="aot_eager", fullgraph=True)
    for model in (plain, compiled):
        model(tokens, targets).objective.backward()
    actual = {name.replace("_orig_mod.", ""): grad for name, grad in gradients(compiled).items()}
    assert_close_by_tensor(actual, gradients(plain), 2e-5)


@pytest.mark.parametrize("config", [*SHAPES.values(), *(ModelTable(preset=name) for name in PRESETS)])
def test_parameter_count_is_the_one_of_the_recipe(config):
    vocab_size = config.vocab_size or 4096
    model = build(config, vocab_size)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == parameter_count(config, vocab_size)
    assert list(model.buffers()) == [], "to_empty() would leave them undefined"


def test_parameters_of_every_dtype_of_compute_are_fp32():
    assert {parameter.dtype for parameter in build(SMALL, VOCAB, torch.bfloat16).parameters()} == {torch.float32}
