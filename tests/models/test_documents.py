"""Documents that share a sequence are computed as if each stood alone: losses, logits and gradients."""

import pytest
import torch

from argosy.data.batch import NO_LOSS
from argosy.models.decoder import Decoder
from argosy.models.init import init_weights
from argosy.recipe.model_table import ModelTable

LENGTHS = [[5, 1, 150, 44], [200], [100, 99, 1]]
LENGTH, VOCABULARY = 200, 97


def model_of(positions: str, dtype: torch.dtype, kv_heads: int) -> Decoder:
    table = ModelTable(
        layers=2, hidden_size=32, heads=4, kv_heads=kv_heads, ffn_size=48, positions=positions, max_positions=LENGTH
    )
    model = Decoder(table, VOCABULARY, dtype)
    init_weights(model, seed=3)
    return model


def packed() -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, (len(LENGTHS), LENGTH), generator=generator)
    targets = torch.randint(VOCABULARY, tokens.shape, generator=generator)
    segments = [[number for number, size in enumerate(row) for _ in range(size)] for row in LENGTHS]
    positions = [[place for size in row for place in range(size)] for row in LENGTHS]
    for row, sizes in enumerate(LENGTHS):
        targets[row, torch.tensor(sizes).cumsum(0) - 1] = NO_LOSS
    as_int = (torch.tensor(part, dtype=torch.int32) for part in (segments, positions))
    return tokens, targets, tuple(as_int)  # type: ignore[return-value]


@pytest.mark.parametrize("positions", ["rope", "learned"])
@pytest.mark.parametrize(("dtype", "kv_heads"), [(torch.float32, 2), (torch.bfloat16, 2), (torch.bfloat16, 4)])
def test_packed_documents_equal_documents_run_one_by_one(positions: str, dtype: torch.dtype, kv_heads: int) -> None:
    tokens, targets, documents = packed()
    together, apart = model_of(positions, dtype, kv_heads), model_of(positions, dtype, kv_heads)
    logits = together(tokens, documents=documents)
    sums = together(tokens, targets, documents=documents)
    sums.objective.backward()
    loss_sum = 0.0
    for row, sizes in enumerate(LENGTHS):
        start = 0
        for size in sizes:
            here = slice(start, start + size)
            alone = apart(tokens[None, row, here])
            tolerance = 2e-5 if dtype == torch.float32 else 3e-2
            torch.testing.assert_close(logits[row, here], alone[0], atol=tolerance, rtol=tolerance)
            one = apart(tokens[None, row, here], targets[None, row, here])
            one.objective.backward()
            loss_sum += float(one.loss_sum)
            start += size
    assert float(sums.loss_sum) == pytest.approx(loss_sum, rel=1e-6 if dtype == torch.float32 else 1e-3)
    for (name, a), b in zip(together.named_parameters(), apart.parameters(), strict=True):
        error = (a.grad - b.grad).norm() / b.grad.norm()
        assert error < (1e-5 if dtype == torch.float32 else 3e-2), name


def test_a_token_has_no_influence_beyond_its_document() -> None:
    tokens, _, documents = packed()
    model = model_of("rope", torch.float32, 2)
    before = model(tokens, documents=documents)
    tokens[0, 5] += 1  # a document of one token
    after = model(tokens % VOCABULARY, documents=documents)
    changed = (before != after).any(-1).nonzero().tolist()
    assert changed == [[0, 5]]


def test_one_document_is_what_no_documents_are() -> None:
    tokens, targets, _ = packed()
    model = model_of("rope", torch.float32, 2)
    alone = (torch.zeros_like(tokens, dtype=torch.int32), torch.arange(LENGTH).expand_as(tokens).int())
    plain, whole = model(tokens, targets), model(tokens, targets, documents=alone)
    assert float(plain.loss_sum) == pytest.approx(float(whole.loss_sum), rel=1e-6)
