"""The inventory equals what real ranks hold and send, exactly; larger layouts by hand-worked counts."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "parallel"))
from counting import counted_steps
from equivalence import LENGTH, SEQUENCES, Form
from matrix import ROWS, Row

from argosy.layout.inventory import inventory
from argosy.layout.layout import Layout
from argosy.layout.stages import balanced_stage_layers, stage_blocks, stage_work
from argosy.layout.weights import block_weights, edge_weights
from argosy.layout.work import Work
from argosy.recipe.flops import model_flops_per_token, parameter_count
from argosy.recipe.model_table import ModelTable
from argosy.recipe.schema import OptimizerTable
from programs import VOCAB
from ranks import run_ranks


def work_of(row: Row, form: Form) -> Work:
    """A step of a row of the equivalence matrix."""
    layout = row.split.layout
    share = SEQUENCES // layout.data_ranks // form.micro_batches
    reduce_bytes = {"fp32": 4, "bf16": 2}[row.split.reduce]
    return Work(form.model, VOCAB, replace(layout, micro_batch_sequences=share), SEQUENCES, LENGTH,
                compute_bytes=4, reduce_bytes=reduce_bytes)  # fmt: skip


MATRIX = {
    f"{row}, {form.micro_batches} micro-batches{', tied' * form.tied}": work_of(row, form)
    for row in ROWS
    for form in row.forms
    # a recipe's micro-batches are equally large
    if row.split.ranks > 1
    and SEQUENCES % (row.split.layout.data_ranks * form.micro_batches) == 0
    and not row.split.compile
}
BF16 = {f"{name}, bf16": replace(work, compute_bytes=2) for name, work in list(MATRIX.items())[::9]}
WORKS = MATRIX | BF16
"""The whole equivalence matrix, and some rows of it in bf16."""


@pytest.mark.dist
@pytest.mark.parametrize("ranks", sorted({work.layout.world_size for work in WORKS.values()}))
def test_equals_what_a_run_counts(ranks: int) -> None:
    names = [name for name, work in WORKS.items() if work.layout.world_size == ranks]
    works = [WORKS[name] for name in names]
    for rank, counted in enumerate(run_ranks(ranks, counted_steps, works, OptimizerTable(), timeout_s=200)):
        for name, work, found in zip(names, works, counted, strict=True):
            told, where = inventory(work, rank), (name, rank)
            assert told.counts() == found.collectives, where
            assert told.parameters == found.parameters, where
            assert told.gradient_bytes == 4 * found.gradients, where
            assert told.optimizer_bytes == 4 * found.optimizer_states, where
            if (schedule := work.schedule) is not None:
                assert schedule.max_in_flight(told.coordinates["pp"]) == found.most_in_flight, where


@pytest.mark.parametrize("preset", ["gpt2", "qwen3-0.6b", "llama3-8b", "argosy-3m"])
def test_weights_add_up_to_the_parameter_count(preset: str) -> None:
    model = ModelTable(preset=preset)
    vocab = model.vocab_size or 4096
    weights = [*(model.layers * [block_weights(model)]), edge_weights(model, vocab)]
    assert sum(w.size for unit in weights for w in unit) == parameter_count(model, vocab)


@settings(max_examples=30)
@given(st.sampled_from(["llama3-8b", "llama3-70b"]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]),
       st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([128_256, 128_257, 101]))  # fmt: skip
def test_ranks_together_hold_every_element_once(preset: str, tp: int, pp: int, fsdp: int, vocab: int) -> None:
    model = ModelTable(preset=preset)
    layout = Layout(tp=tp, pp=pp, fsdp=fsdp, zero=3 if fsdp > 1 else 0, schedule="1f1b" if pp > 1 else "none",
                    micro_batch_sequences=1)  # fmt: skip
    work = Work(model, vocab, layout, batch_sequences=2 * fsdp, sequence_length=64)
    counted = [inventory(work, rank) for rank in range(layout.world_size)]
    norms = (2 * model.layers + 1) * model.hidden_size  # whole on every tensor-parallel rank
    assert sum(c.parameters for c in counted) == parameter_count(model, vocab) + (tp - 1) * norms
    # Each rank reads as many tokens as its data-parallel share, and computes its part of each
    flops = sum(c.flops.forward + c.flops.backward for c in counted)
    assert flops == model_flops_per_token(model, vocab, 64) * 64 * work.batch_sequences


def test_optimizer_state_alone_is_shared_with_zero_1() -> None:
    model = ModelTable(preset="llama3-8b")
    work = Work(model, 128_256, Layout(fsdp=4, zero=1, reshard_after_forward=False, micro_batch_sequences=1), 4, 64)
    counted = inventory(work, rank=2)
    total = parameter_count(model, 128_256)
    assert (counted.parameters, counted.gradient_bytes) == (total, 4 * total)
    assert counted.optimizer_bytes == 2 * 4 * total // 4
    assert counted.counts() == {("fsdp", "reduce_scatter", 4 * total): 1, ("fsdp", "all_gather", 4 * total): 1,
                                ("fsdp", "all_reduce", 4): 1}  # fmt: skip


def test_muon_keeps_one_number_for_a_matrix_and_two_elsewhere() -> None:
    work = Work(ModelTable(layers=2, hidden_size=8, heads=2, ffn_size=16), 32, Layout(), 2, 4)
    matrices = 2 * (4 * 8 * 8 + 3 * 8 * 16)
    others = 2 * 32 * 8 + 5 * 8
    assert inventory(replace(work, optimizer="muon")).optimizer_bytes == 4 * (matrices + 2 * others)
    assert inventory(replace(work, optimizer="sgd")).optimizer_bytes == 0


def test_tensor_parallel_transfers_by_hand() -> None:
    # Llama 3 8B, one sequence of 8192 in bf16: a residual stream is 8192 · 4096 · 2 bytes = 64 MiB
    work = Work(ModelTable(preset="llama3-8b"), 128_256, Layout(tp=8, micro_batch_sequences=1), 1, 8192, device="cuda")
    found = inventory(work)
    stream = 64 * 2**20
    counts = found.counts()
    assert counts["tp", "all_gather", stream] == 4 * 32 + 2  # 2 per pass and block, embedding and head once each way
    assert counts["tp", "reduce_scatter", stream] == 4 * 32 + 2
    # 2^27 logits at once are 8372 rows of 16,032: all 8192 tokens in one chunk, three fp32 numbers of each
    assert counts["tp", "all_gather", 8 * 3 * 8192 * 4] == 1
    # Korthikanti et al. 2022: with sequence parallelism as many bytes as four all-reduces per block
    assert found.by_axis()["tp"] == pytest.approx(32 * 4 * 2 * stream, rel=0.02)


def test_interleaving_multiplies_transfers_between_stages() -> None:
    def sent(name: str, virtual: int) -> int:
        layout = Layout(pp=4, schedule=name, virtual_stages=virtual, micro_batch_sequences=1)
        work = Work(ModelTable(preset="llama3-8b"), 128_256, layout, 8, 64)
        return sum(c.count for c in inventory(work, rank=1).collectives if c.op == "send")

    assert sent("1f1b", 1) == 2 * 8
    assert sent("interleaved_1f1b", 2) == 2 * sent("1f1b", 1)


def test_uneven_stages_give_the_first_ones_more() -> None:
    assert [len(r) for r in stage_blocks(Layout(pp=4, schedule="1f1b"), 30)] == [8, 8, 7, 7]


@settings(max_examples=30)
@given(st.integers(2, 6), st.integers(6, 14), st.sampled_from([0.0, 0.5, 1.7]))
def test_balanced_stages_are_the_best_there_are(stages: int, layers: int, embedding: float) -> None:
    model = ModelTable(layers=layers, hidden_size=64, heads=4, ffn_size=128)
    options = {"sequence_length": 128, "embedding": embedding}

    def busiest(counts: tuple[int, ...]) -> float:
        return max(stage_work(model, 1000, counts, **options))

    found = balanced_stage_layers(model, 1000, stages, **options)
    assert sum(found) == layers
    every = (
        (c for c in itertools.product(range(1, layers + 1), repeat=stages) if sum(c) == layers) if stages < 4 else ()
    )
    assert busiest(found) <= min(map(busiest, every), default=busiest(found)) + 1e-9
    even = tuple(len(r) for r in stage_blocks(Layout(pp=stages, schedule="1f1b"), layers))
    assert busiest(found) <= busiest(even) + 1e-9
