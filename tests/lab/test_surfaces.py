"""Forms of the loss: derivatives, excess over the front, starts."""

import numpy as np
import pytest

from argosy.laws.loss import EPOCH_REPLICATION
from argosy.laws.surfaces import Chinchilla, Curve, Front, Points, Surface

FORMS: list[Surface] = [
    Chinchilla(),
    Chinchilla(tied=True),
    Chinchilla(repetition=True),
    Front(),
    Front(drift=False),
    Front(repetition=True),
    Curve(),
]


def some_points(rng: np.random.Generator) -> Points:
    n, d, unique = rng.normal(size=(3, 11))
    return Points(n, d, unique, rng.uniform(0, 8, 11))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_derivatives_are_those_of_the_values(form: Surface) -> None:
    rng = np.random.default_rng(3)
    X, P = some_points(rng), 0.3 * rng.standard_normal((4, form.size)) - 0.5
    value, J = form.evaluate(P, X)
    for j in range(form.size):
        moved = P.copy()
        moved[:, j] += 1e-6
        back = P.copy()
        back[:, j] -= 1e-6
        slope = (form.evaluate(moved, X)[0] - form.evaluate(back, X)[0]) / 2e-6
        np.testing.assert_allclose(J[..., j], slope, rtol=1e-5, atol=1e-6 * np.abs(value).max(), err_msg=form.names[j])


def test_chinchilla_has_the_published_law_as_a_value() -> None:
    law = EPOCH_REPLICATION
    n, d = np.array([1e8, 1e9, 7e9]), np.array([2e9, 2e10, 1e12])
    p = np.log([[law.E, law.A, law.B, law.alpha, law.beta]])
    said = Chinchilla().evaluate(p, Points(np.log(n), np.log(d)))[0][0]
    np.testing.assert_allclose(said, [law.loss(a, b) for a, b in zip(n, d, strict=True)], rtol=1e-12)


def test_excess_is_zero_at_the_optimum_and_positive_off_it() -> None:
    law = EPOCH_REPLICATION
    p = np.log([law.E, law.A, law.B, law.alpha, law.beta])
    n, d = law.optimum(1e21)
    factor = np.array([1.0, 0.5, 2.0])
    excess = Chinchilla().excess(p, Points(np.log(n * factor), np.log(d / factor)))
    assert abs(excess[0]) < 1e-9
    assert (excess[1:] > 0.01).all()


@pytest.mark.parametrize("form", [Chinchilla(), Front()], ids=lambda form: form.name)
def test_start_is_already_near_a_planted_law(form: Surface) -> None:
    law = EPOCH_REPLICATION
    n, d = np.meshgrid(np.geomspace(1e8, 1e10, 6), np.geomspace(2e9, 2e11, 6))
    X = Points(np.log(n.ravel() / 1e9), np.log(d.ravel() / 2e10))
    loss = np.array([law.loss(a, b) for a, b in zip(n.ravel(), d.ravel(), strict=True)])
    p = form.start(X, loss, np.ones(36))
    assert np.abs(form.evaluate(p[None], X)[0][0] / loss - 1).mean() < 0.01


def test_repetition_is_worth_what_the_published_law_says() -> None:
    from argosy.laws.repetition import MUENNIGHOFF

    form = Chinchilla(repetition=True)
    tokens, unique = 8e9, 1e9
    p = np.array([[0.0, 0.0, 0.0, 0.0, 0.0, np.log(MUENNIGHOFF.data_half_life)]])
    X = Points(np.zeros(1), np.log([tokens]), np.log([unique]), np.array([tokens / unique - 1]))
    effective = form._effective(p, X)[0][0, 0]
    assert np.exp(effective) == pytest.approx(MUENNIGHOFF.effective_tokens(tokens, unique), rel=1e-12)
