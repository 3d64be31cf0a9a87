"""Saved activations: per block as autograd keeps them, in a step as the schedule holds them, and within a budget."""

from dataclasses import replace

import pytest
import torch

from argosy.layout.activations import block_bytes, edge_bytes, peak_bytes, recomputed_blocks
from argosy.layout.layout import Layout
from argosy.layout.schedules import SCHEDULES
from argosy.layout.work import Work
from argosy.models import cpu
from argosy.models.decoder import Block
from argosy.models.rope import rotation_table
from argosy.recipe.model_table import ModelTable

SHAPE = {"layers": 4, "hidden_size": 32, "heads": 4, "ffn_size": 48}


@pytest.mark.parametrize("activation", ["swiglu", "gelu"])
def test_a_block_saves_what_autograd_keeps(monkeypatch: pytest.MonkeyPatch, activation: str) -> None:
    """Of layer norm, which a CPU too computes in one operation: its RMS norm is made of several that save more."""
    monkeypatch.setattr(cpu, "applies", lambda x: False)
    model = ModelTable(**SHAPE, norm="layernorm", activation=activation, bias="all")
    work = Work(model, 64, Layout(), batch_sequences=2, sequence_length=16, compute_bytes=4)
    block, rotation = Block(model), rotation_table(model, 16, torch.float32, torch.device("cpu"))
    known = {t.untyped_storage().data_ptr() for t in (*block.parameters(), *rotation)}
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = block(torch.randn(2, 16, 32, requires_grad=True), rotation)
    assert sum(saved.values()) == block_bytes(work, "none")
    assert result.shape == (2, 16, 32)


def test_recomputation_saves_ever_less_and_tensor_parallelism_divides_it() -> None:
    work = Work(ModelTable(preset="llama3-8b"), 128_256, Layout(micro_batch_sequences=1), 1, 8192)
    none, selective, full = (block_bytes(work, what) for what in ("none", "selective", "full"))
    assert none > selective > full == 8192 * 4096 * 2
    # Korthikanti et al. 2022, section 4.2.2: sequence parallelism divides everything but what products read whole
    eighth = replace(work, layout=Layout(tp=8, micro_batch_sequences=1))
    whole = 2 * 8192 * 4096 * 2
    assert block_bytes(eighth, "none") == (none - whole) // 8 + whole
    assert block_bytes(eighth, "full") == full // 8


@pytest.mark.parametrize("name", ["1f1b", "zero_bubble", "zbv", "dualpipev"])
def test_the_peak_of_a_pipeline_is_what_its_schedule_holds(name: str) -> None:
    virtual = SCHEDULES[name].least_virtual_stages
    layout = Layout(pp=2, schedule=name, virtual_stages=virtual, micro_batch_sequences=1)
    work = Work(ModelTable(**SHAPE), 64, layout, 8, 16)
    # On equal stages: without what is outside of the blocks, activations in flight times those of a stage
    stage = 4 // (2 * virtual) * block_bytes(work, "none")
    assert work.schedule is not None
    for rank, pipeline_rank in ((0, 0), (1, 1)):
        held = work.schedule.max_in_flight(pipeline_rank)
        edges = [edge_bytes(work, number, 0) for number in range(2 * virtual)]
        peak = peak_bytes(work, rank, frozenset())
        assert held * (stage + min(edges)) <= peak <= held * (stage + max(edges))


def test_a_budget_recomputes_just_as_many_blocks_as_needed() -> None:
    layout = Layout(recompute="full", recompute_budget_bytes=0)
    work = Work(ModelTable(**SHAPE), 64, layout, 2, 16)

    def chosen(budget: int | None) -> int:
        return len(recomputed_blocks(replace(work, layout=replace(layout, recompute_budget_bytes=budget)), 0))

    most = peak_bytes(work, 0, frozenset())
    assert chosen(most) == 0
    assert chosen(most - 1) == 1
    assert chosen(0) == chosen(None) == 4
    for blocks in range(5):
        just = peak_bytes(work, 0, frozenset(range(blocks)))
        assert chosen(just) == blocks
    assert recomputed_blocks(replace(work, layout=Layout()), 0) == frozenset()
