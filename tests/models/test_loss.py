import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from argosy.models import loss as module
from argosy.models.loss import linear_cross_entropy


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 5 tokens, so that small cases have several, the last one shorter."""
    monkeypatch.setattr(module, "chunk_rows", lambda *_: 5)


def case(tokens=23, width=7, vocab=11, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(tokens, width, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(vocab, width, generator=generator, dtype=dtype).requires_grad_()
    targets = torch.randint(vocab, (tokens,), generator=generator)
    targets[::6] = -100
    return hidden, weight, targets


def plain(hidden, weight, targets, z_loss):
    logits = F.linear(hidden, weight)
    z_sum = z_loss * torch.logsumexp(logits, -1)[targets != -100].square().sum()
    return F.cross_entropy(logits, targets, reduction="sum"), z_sum


@pytest.mark.parametrize("z_loss", [0.0, 1e-2])
def test_gradcheck(small_chunks, z_loss):
    hidden, weight, targets = case()
    assert torch.autograd.gradcheck(
        lambda h, w: linear_cross_entropy(h, w, targets, z_loss).objective, (hidden, weight)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("z_loss", [0.0, 1e-2])
def test_values_and_gradients_equal_the_plain_ones(small_chunks, dtype, z_loss):
    hidden, weight, targets = case(dtype=dtype)
    sums = linear_cross_entropy(hidden, weight, targets, z_loss)
    loss_sum, z_sum = plain(hidden, weight, targets, z_loss)
    torch.testing.assert_close(tuple(sums), (loss_sum + z_sum, loss_sum, z_sum))
    actual = torch.autograd.grad(sums.objective * 0.37, (hidden, weight))
    expected = torch.autograd.grad((loss_sum + z_sum) * 0.37, (hidden, weight))
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


def test_bf16_gradients_are_as_near_the_truth_as_the_plain_ones():
    hidden, weight, targets = case(tokens=600, width=64, vocab=300)
    truth = torch.autograd.grad(plain(hidden, weight, targets, 0)[0], (hidden, weight))
    half = [t.detach().bfloat16().requires_grad_() for t in (hidden, weight)]
    logits = F.linear(*half).float()
    reference = torch.autograd.grad(F.cross_entropy(logits, targets, reduction="sum"), half)
    ours = torch.autograd.grad(linear_cross_entropy(*half, targets).objective, half)
    for t, r, o in zip(truth, reference, ours, strict=True):
        assert (o - t).norm() <= 1.1 * (r - t).norm()


def test_the_factor_of_bf16_gradients_is_not_rounded():
    hidden, weight, targets = case(tokens=600, width=64, vocab=300, dtype=torch.bfloat16)
    once = torch.autograd.grad(linear_cross_entropy(hidden, weight, targets).objective, (hidden, weight))
    scaled = torch.autograd.grad(linear_cross_entropy(hidden, weight, targets).objective / 3, (hidden, weight))
    for a, b in zip(once, scaled, strict=True):
        factor = (a.double() * b.double()).sum() / a.double().square().sum()
        torch.testing.assert_close(factor * 3, torch.tensor(1.0, dtype=torch.float64), rtol=2e-4, atol=0)


def test_a_far_target_has_a_finite_loss():
    hidden, weight = torch.tensor([[200.0]]), torch.tensor([[1.0], [-1.0]])
    sums = linear_cross_entropy(hidden, weight, torch.tensor([1]))
    assert sums.loss_sum == 400


def test_without_any_counted_target_all_is_zero():
    hidden, weight, targets = case()
    sums = linear_cross_entropy(hidden, weight, torch.full_like(targets, -100), 0.1)
    sums.objective.backward()
    assert tuple(s.item() for s in sums) == (0, 0, 0)
    assert not hidden.grad.any()
    assert not weight.grad.any()


def test_a_non_finite_hidden_state_makes_the_loss_non_finite():
    hidden, weight, targets = case()
    hidden.data[1, 0] = torch.nan
    assert linear_cross_entropy(hidden, weight, targets).loss_sum.isnan()


def test_only_the_objective_has_a_gradient_and_only_where_asked():
    hidden, weight, targets = case()
    sums = linear_cross_entropy(hidden, weight, targets)
    assert [s.requires_grad for s in sums] == [True, False, False]
    with torch.no_grad():
        assert not linear_cross_entropy(hidden, weight, targets).objective.requires_grad


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that any result of an operation had."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def test_logits_of_the_whole_batch_never_exist():
    hidden, weight, targets = case(tokens=2048, width=16, vocab=3000, dtype=torch.float32)
    with LargestTensor() as ours:
        linear_cross_entropy(hidden, weight, targets).objective.backward()
    with LargestTensor() as theirs:
        plain(hidden, weight, targets, 0)[0].backward()
    assert theirs.elements == 2048 * 3000, "the instrument sees logits where there are some"
    assert ours.elements <= 2048 * 3000 / 8
