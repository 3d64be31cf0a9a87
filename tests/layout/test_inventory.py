"""The inventory equals what real ranks hold and send, exactly; larger layouts by hand-worked counts."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from counting import SEQUENCE, SEQUENCES, counted_step

from argosy.layout.interleaved import interleaved_1f1b
from argosy.layout.inventory import Inventory, block_weights, edge_weights, inventory, stage_blocks
from argosy.layout.layout import Layout
from argosy.layout.schedule import one_forward_one_backward
from argosy.recipe.flops import parameter_count
from argosy.recipe.schema import ModelTable
from programs import VOCAB, Split, model_table
from ranks import run_ranks


def _counts(found: Inventory) -> dict[tuple[str, str, int], int]:
    out: dict[tuple[str, str, int], int] = {}
    for c in found.collectives:
        out[c.axis, c.op, c.bytes] = out.get((c.axis, c.op, c.bytes), 0) + c.count
    return out


@pytest.mark.dist
@pytest.mark.parametrize(
    ("split", "micro_batches", "reduce"),
    [
        (Split(dp=2), 1, "fp32"),
        (Split(dp=3), 2, "bf16"),
        (Split(fsdp=2), 1, "fp32"),
        (Split(fsdp=3), 2, "bf16"),  # shapes that 3 does not divide
        (Split(fsdp=2, reshard=False), 3, "fp32"),
        (Split(dp=2, fsdp=2), 1, "fp32"),
        (Split(dp=2, fsdp=3), 2, "fp32"),
    ],
    ids=str,
)
def test_equals_what_a_run_counts(split: Split, micro_batches: int, reduce: str) -> None:
    layout = split.layout
    share = SEQUENCES // layout.data_ranks // micro_batches
    layout = Layout(**{**layout.__dict__, "micro_batch_sequences": share})
    for rank, (seen, held, states) in enumerate(run_ranks(split.ranks, counted_step, split, micro_batches, reduce)):
        found = inventory(
            model_table(), VOCAB, layout, batch_sequences=SEQUENCES, sequence_length=SEQUENCE,
            reduce_bytes={"fp32": 4, "bf16": 2}[reduce], rank=rank,
        )  # fmt: skip
        assert _counts(found) == seen
        assert found.parameters == held
        assert found.optimizer_bytes == 4 * states


@pytest.mark.parametrize("preset", ["gpt2", "qwen3-0.6b", "llama3-8b", "argosy-3m"])
def test_weights_add_up_to_the_parameter_count(preset: str) -> None:
    model = ModelTable(preset=preset)
    vocab = model.vocab_size or 4096
    weights = [*(model.layers * [block_weights(model)]), edge_weights(model, vocab)]
    assert sum(w.size for unit in weights for w in unit) == parameter_count(model, vocab)


@settings(max_examples=30)
@given(st.sampled_from(["llama3-8b", "llama3-70b"]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]),
       st.sampled_from([1, 2, 3, 4, 6]))  # fmt: skip
def test_ranks_together_hold_every_element_once(preset: str, tp: int, pp: int, fsdp: int) -> None:
    model = ModelTable(preset=preset)
    assert model.vocab_size is not None
    layout = Layout(tp=tp, pp=pp, fsdp=fsdp, zero=3 if fsdp > 1 else 0, schedule="1f1b" if pp > 1 else "none",
                    micro_batch_sequences=1)  # fmt: skip
    schedule = one_forward_one_backward(pp, 2) if pp > 1 else None
    total = sum(
        inventory(model, model.vocab_size, layout, batch_sequences=2 * fsdp, sequence_length=64, schedule=schedule,
                  rank=rank).parameters
        for rank in range(layout.world_size)
    )  # fmt: skip
    norms = (2 * model.layers + 1) * model.hidden_size  # whole on every tensor-parallel rank
    assert total == parameter_count(model, model.vocab_size) + (tp - 1) * norms


def test_tensor_parallel_transfers_by_hand() -> None:
    # Llama 3 8B, one sequence of 8192 in bf16: a residual stream is 8192 · 4096 · 2 bytes = 64 MiB
    model = ModelTable(preset="llama3-8b")
    found = inventory(model, 128_256, Layout(tp=8, micro_batch_sequences=1), batch_sequences=1, sequence_length=8192)
    stream = 64 * 2**20
    counts = _counts(found)
    assert counts["tp", "all_gather", stream] == 4 * 32 + 2  # 2 per pass and block, embedding and head once each way
    assert counts["tp", "reduce_scatter", stream] == 4 * 32 + 2
    # Korthikanti et al. 2022: with sequence parallelism as many bytes as four all-reduces per block
    assert found.by_axis()["tp"] == pytest.approx(32 * 4 * 2 * stream, rel=0.02)


def test_interleaving_multiplies_transfers_between_stages() -> None:
    model = ModelTable(preset="llama3-8b")

    def sent(virtual: int) -> int:
        name = "1f1b" if virtual == 1 else "interleaved_1f1b"
        schedule = one_forward_one_backward(4, 8) if virtual == 1 else interleaved_1f1b(4, virtual, 8)
        layout = Layout(pp=4, schedule=name, virtual_stages=virtual, micro_batch_sequences=1)  # type: ignore[arg-type]
        found = inventory(model, 128_256, layout, batch_sequences=8, sequence_length=64, schedule=schedule, rank=1)
        return sum(c.count for c in found.collectives if c.op == "send")

    assert sent(1) == 2 * 8
    assert sent(2) == 2 * sent(1)


def test_uneven_stages_give_the_first_ones_more() -> None:
    assert [len(r) for r in stage_blocks(Layout(pp=4, schedule="1f1b"), 30)] == [8, 8, 7, 7]
